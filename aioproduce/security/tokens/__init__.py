"""Where a producer's credentials come from: one module a source, each a `CredentialSource`.

| module | source |
|---|---|
| `endpoint` | a token endpoint (OAuth 2.0), asked by HTTP with what `grants` says |
| `assertion` | the signed JWT that a grant may need: from a file, or signed here |
| `file` | a token that another program writes into a file |
| `unsecured` | a JWT without a signature, for trials (KIP-255) |
| `msk` | AWS MSK's IAM |
| `provider` | a callable of the user's own, for tokens or for passwords |

What they share: `trouble` (errors that carry no secret), `checking` (is that a token, and until when), `text_file`.
"""
