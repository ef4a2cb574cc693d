"""The sources of a producer's credentials: one module per source, each with a `CredentialSource`.

| module | source |
|---|---|
| `endpoint` | a token endpoint (OAuth 2.0), asked by HTTP with a grant of `grants` |
| `assertion` | the signed JWT that a grant may need: read from a file, or signed here |
| `file` | a file with a token that another program writes |
| `unsecured` | a JWT without a signature, for trials (KIP-255) |
| `msk` | IAM of AWS MSK |
| `provider` | a callable of the user's own, for tokens or for passwords |

They share `trouble` (errors without secrets), `checking` (validity of a token) and `text_file`.
"""
