// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli; RFC 3720, B.4): finds accidents, not attackers.  The
// processor's own instruction where it has one, else a table; both give the
// same value.
//
// Threads: any.

#ifndef CADRE_KERNEL_CRC32C_H
#define CADRE_KERNEL_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/** Of nbytes that follow those whose checksum is crc; crc of nothing is 0. */
uint32_t cadre_crc32c(uint32_t crc, const void *data, size_t nbytes);

/** As above, never with the instruction: what the other one is tested by. */
uint32_t cadre_crc32c_plain(uint32_t crc, const void *data, size_t nbytes);

#endif // CADRE_KERNEL_CRC32C_H
