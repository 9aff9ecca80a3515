// SPDX-License-Identifier: Apache-2.0
//
// Connections that look as if they came from another host: their two ends have
// different addresses.

#ifndef CADRE_TESTS_SUPPORT_AFAR_H
#define CADRE_TESTS_SUPPORT_AFAR_H

#include "base/socket.h"

/**
 * An address of this host that is not the loopback's, with port 0.  False if it
 * has none.
 */
bool find_afar(cadre_address *out);

/** A non-blocking connection to it, from 127.0.0.1. */
int connect_from_afar(const cadre_address *to);

#endif // CADRE_TESTS_SUPPORT_AFAR_H
