/* transport/line/seal.c: see the header. A cipher's context is set up with its key once; a record then costs a nonce, so
 * that a short one takes a few hundred nanoseconds more than its bytes. */
#include "transport/line/seal.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/error.h"

#define NONCE_BYTES 12

struct sealing {
    OSSL_LIB_CTX *lib; /* owned, as the two below */
    EVP_CIPHER *cipher;
    EVP_KDF *kdf;
};

struct seal_box {
    EVP_CIPHER_CTX *context; /* owned */
    uint64_t count;          /* of the record that is next */
};

weir_status sealing_open(struct sealing **to)
{
    struct sealing *sealing = *to = calloc(1, sizeof(*sealing));
    if (!sealing)
        return error_set(WEIR_E_MEMORY, "no memory for encryption");
    sealing->lib = OSSL_LIB_CTX_new();
    sealing->cipher = sealing->lib ? EVP_CIPHER_fetch(sealing->lib, "AES-256-GCM", NULL) : NULL;
    sealing->kdf = sealing->lib ? EVP_KDF_fetch(sealing->lib, "HKDF", NULL) : NULL;
    if (sealing->cipher && sealing->kdf)
        return WEIR_OK;
    return error_set(WEIR_E_UNSUPPORTED, "OpenSSL's libcrypto has no AES-256-GCM or no HKDF here");
}

void sealing_close(struct sealing *sealing)
{
    if (!sealing)
        return;
    EVP_KDF_free(sealing->kdf);
    EVP_CIPHER_free(sealing->cipher);
    OSSL_LIB_CTX_free(sealing->lib);
    free(sealing);
}

static void put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static void put_u64(unsigned char *to, uint64_t value)
{
    put_u32(to, (uint32_t)value);
    put_u32(to + 4, (uint32_t)(value >> 32));
}

weir_status seal_derive(const struct sealing *sealing, const unsigned char secrets[2 * SEAL_SECRET_BYTES],
                        uint64_t session, const char *label, uint32_t from, uint32_t to,
                        unsigned char key[SEAL_SECRET_BYTES])
{
    unsigned char salt[8], info[64];
    put_u64(salt, session);
    put_u32(info, from);
    put_u32(info + 4, to);
    size_t info_bytes = 8 + (size_t)snprintf((char *)info + 8, sizeof(info) - 8, "%s", label);
    EVP_KDF_CTX *context = EVP_KDF_CTX_new(sealing->kdf);
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secrets, 2 * SEAL_SECRET_BYTES),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof(salt)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, info_bytes),
        OSSL_PARAM_construct_end(),
    };
    bool made = context && EVP_KDF_derive(context, key, SEAL_SECRET_BYTES, params) > 0;
    EVP_KDF_CTX_free(context);
    return made ? WEIR_OK : error_set(WEIR_E_MEMORY, "no key for a connection could be made");
}

weir_status seal_box_new(const struct sealing *sealing, const unsigned char key[SEAL_SECRET_BYTES], bool writes,
                         struct seal_box **to)
{
    struct seal_box *box = *to = calloc(1, sizeof(*box));
    if (box)
        box->context = EVP_CIPHER_CTX_new();
    /* GCM's nonces have 12 bytes by default */
    if (box && box->context && EVP_CipherInit_ex2(box->context, sealing->cipher, key, NULL, writes, NULL))
        return WEIR_OK;
    seal_box_free(box);
    *to = NULL;
    return error_set(WEIR_E_MEMORY, "no memory for encryption");
}

void seal_box_free(struct seal_box *box)
{
    if (!box)
        return;
    EVP_CIPHER_CTX_free(box->context);
    free(box);
}

/* With the record's nonce, and its length as what is authenticated but not encrypted. */
static bool record_begin(struct seal_box *box, const unsigned char *head)
{
    unsigned char nonce[NONCE_BYTES] = {0};
    int done;
    put_u64(nonce + NONCE_BYTES - 8, box->count++);
    return EVP_CipherInit_ex2(box->context, NULL, NULL, nonce, -1, NULL) &&
           EVP_CipherUpdate(box->context, NULL, &done, head, SEAL_HEAD_BYTES);
}

bool seal_write(struct seal_box *box, const struct iovec *parts, int count, size_t bytes, unsigned char *to)
{
    unsigned char *at = to + SEAL_HEAD_BYTES;
    int done;
    put_u32(to, (uint32_t)bytes);
    bool good = record_begin(box, to);
    for (int i = 0; i < count && good; i++) {
        good = EVP_CipherUpdate(box->context, at, &done, parts[i].iov_base, (int)parts[i].iov_len);
        at += parts[i].iov_len;
    }
    return good && at == to + SEAL_HEAD_BYTES + bytes && EVP_CipherFinal_ex(box->context, at, &done) &&
           EVP_CIPHER_CTX_ctrl(box->context, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG_BYTES, at);
}

uint32_t seal_record_bytes(const unsigned char *record)
{
    return (uint32_t)record[0] | (uint32_t)record[1] << 8 | (uint32_t)record[2] << 16 | (uint32_t)record[3] << 24;
}

bool seal_read(struct seal_box *box, const unsigned char *record, size_t bytes, unsigned char *to)
{
    unsigned char tag[SEAL_TAG_BYTES], none[SEAL_TAG_BYTES];
    int done;
    memcpy(tag, record + SEAL_HEAD_BYTES + bytes, sizeof(tag));
    return record_begin(box, record) &&
           EVP_CipherUpdate(box->context, to, &done, record + SEAL_HEAD_BYTES, (int)bytes) &&
           EVP_CIPHER_CTX_ctrl(box->context, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG_BYTES, tag) &&
           EVP_CipherFinal_ex(box->context, none, &done) > 0;
}
