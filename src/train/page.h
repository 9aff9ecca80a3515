// SPDX-License-Identifier: Apache-2.0
//
// Text and numbers of an HTML page: everything that comes from outside is
// escaped, and numbers look the same in every locale.  Whether the stream took
// everything is asked by whoever closes it.
//
// Threads: any, for different streams.

#ifndef CADRE_TRAIN_PAGE_H
#define CADRE_TRAIN_PAGE_H

#include <stdio.h>

/** Text between tags or in an attribute's double quotes. */
void cadre_page_text(FILE *page, const char *text);

enum { CADRE_PAGE_NUMBER_BYTES = 48 };

/** value with so many decimals, at most 9; "-" if it is not finite. */
void cadre_page_fixed(
    double value, int decimals, char text[CADRE_PAGE_NUMBER_BYTES]);

/** value with three or four digits that count: 0.0123, 12.3, 4567, 1.23M. */
void cadre_page_short(double value, char text[CADRE_PAGE_NUMBER_BYTES]);

/** As above, with a binary unit: 1.50 MiB. */
void cadre_page_bytes(double value, char text[CADRE_PAGE_NUMBER_BYTES]);

/** Writes value with two decimals, as coordinates are. */
void cadre_page_coordinate(FILE *page, double value);

#endif // CADRE_TRAIN_PAGE_H
