/* TLS 1.3 by OpenSSL, if the program was built WITH_TLS and got a certificate; else every connection is plaintext.
 * connection.h calls tls_begin() for a new socket, tls_receive() and tls_send() in place of recv() and send().
 *
 * 1. Both return the values of the calls that they replace: -1 with EAGAIN if the socket would block.
 * 2. The handshake happens within tls_receive(). Its few kilobytes always fit into a new socket's buffer.
 */
#ifndef NULL_BROKER_TLS_H
#define NULL_BROKER_TLS_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

enum { TLS_RECORD = 16 << 10 }; /* the most plaintext in one record */

#ifdef WITH_TLS

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

static SSL_CTX *tls_context; /* NULL: plaintext */

/* Key, certificate and chain in one PEM file. */
static void tls_use(const char *file)
{
    tls_context = SSL_CTX_new(TLS_server_method());
    if (tls_context == NULL || SSL_CTX_set_min_proto_version(tls_context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_use_certificate_chain_file(tls_context, file) != 1 ||
        SSL_CTX_use_PrivateKey_file(tls_context, file, SSL_FILETYPE_PEM) != 1) {
        ERR_print_errors_fp(stderr);
        exit(2);
    }
    /* Answers may move in memory between two tries, and be sent in pieces. */
    SSL_CTX_set_mode(tls_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

static SSL *tls_begin(int fd)
{
    if (tls_context == NULL)
        return NULL;
    SSL *tls = SSL_new(tls_context);
    if (tls == NULL || SSL_set_fd(tls, fd) != 1) {
        ERR_print_errors_fp(stderr);
        exit(1);
    }
    SSL_set_accept_state(tls);
    return tls;
}

static ssize_t tls_result(SSL *tls, int result)
{
    int error = SSL_get_error(tls, result);
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

static ssize_t tls_receive(SSL *tls, void *bytes, size_t size)
{
    size_t count = 0;
    ERR_clear_error();
    int result = SSL_read_ex(tls, bytes, size, &count);
    return result == 1 ? (ssize_t)count : tls_result(tls, result);
}

static ssize_t tls_send(SSL *tls, const void *bytes, size_t size)
{
    size_t count = 0;
    ERR_clear_error();
    int result = SSL_write_ex(tls, bytes, size, &count);
    return result == 1 ? (ssize_t)count : tls_result(tls, result);
}

static void tls_end(SSL *tls)
{
    SSL_free(tls);
}

#else

typedef void SSL;

static void tls_use(const char *file)
{
    fprintf(stderr, "null_broker: built without TLS, which %s asks for\n", file);
    exit(2);
}

static SSL *tls_begin(int fd)
{
    (void)fd;
    return NULL;
}

static ssize_t tls_receive(SSL *tls, void *bytes, size_t size)
{
    (void)tls, (void)bytes, (void)size;
    abort();
}

static ssize_t tls_send(SSL *tls, const void *bytes, size_t size)
{
    (void)tls, (void)bytes, (void)size;
    abort();
}

static void tls_end(SSL *tls)
{
    (void)tls;
}

#endif
#endif
