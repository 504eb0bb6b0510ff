/* transport/line/seal.h: encrypted and authenticated records, for connections that ZeroMQ does not make.
 *
 *     bytes  --seal_write()-->  [ length | AES-256-GCM of the bytes | tag ]  --seal_read()-->  bytes, if nothing was changed
 *              4 bytes, little-endian, authenticated             16
 *
 * A direction of a connection has a key of its own and counts its records, from 0; the count is the nonce. So a record
 * that was changed, repeated, left out or comes from elsewhere does not open, and no nonce is used twice. Keys are
 * derived (HKDF with SHA-256) from a secret of each end, which came over a connection that is encrypted already.
 *
 * The work is OpenSSL's libcrypto, in a context of its own: the program's settings for it do not count, and are not
 * changed. A box belongs to one thread at a time.
 */
#ifndef TRANSPORT_LINE_SEAL_H
#define TRANSPORT_LINE_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <weir/base.h>

#define SEAL_SECRET_BYTES 32
#define SEAL_HEAD_BYTES 4
#define SEAL_TAG_BYTES 16
#define SEAL_OVER_BYTES (SEAL_HEAD_BYTES + SEAL_TAG_BYTES)

/* The key and counters that all boxes of a session share. */
struct sealing;

/* One direction of one connection, at one end. */
struct seal_box;

weir_status sealing_open(struct sealing **sealing);
void sealing_close(struct sealing *sealing); /* behind its boxes; also NULL */

/* Makes a key, or a ticket, of 32 bytes for one purpose (`label`, a short one, and two ranks). The secrets in the order of the ranks
 * that made them. */
weir_status seal_derive(const struct sealing *sealing, const unsigned char secrets[2 * SEAL_SECRET_BYTES],
                        uint64_t session, const char *label, uint32_t from, uint32_t to,
                        unsigned char key[SEAL_SECRET_BYTES]);

weir_status seal_box_new(const struct sealing *sealing, const unsigned char key[SEAL_SECRET_BYTES], bool writes,
                         struct seal_box **box);
void seal_box_free(struct seal_box *box); /* also NULL */

/* Writes one record of all the parts, `bytes` together and more than 0, to `to`, which has room for SEAL_OVER_BYTES more. */
bool seal_write(struct seal_box *box, const struct iovec *parts, int count, size_t bytes, unsigned char *to);

/* The bytes that a record holds, from its first SEAL_HEAD_BYTES. Not to be believed before seal_read(). */
uint32_t seal_record_bytes(const unsigned char *record);

/* Opens a record that holds `bytes`, into `to`. False: it is not the one that is due; what stands in `to` then means
 * nothing. */
bool seal_read(struct seal_box *box, const unsigned char *record, size_t bytes, unsigned char *to);

#endif
