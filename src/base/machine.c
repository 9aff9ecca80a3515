// SPDX-License-Identifier: Apache-2.0
//
// Linux: /proc.

#include "base/machine.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BOOT_ID_CHARACTERS = 36 };

static bool read_boot_id(char id[BOOT_ID_CHARACTERS + 1])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL) {
        return false;
    }
    bool complete = fgets(id, BOOT_ID_CHARACTERS + 1, file) != NULL &&
                    strlen(id) == BOOT_ID_CHARACTERS;
    (void)fclose(file);
    return complete;
}

void cadre_machine_text(char text[CADRE_MACHINE_BYTES])
{
    char id[BOOT_ID_CHARACTERS + 1];
    struct stat network;
    struct stat users;
    text[0] = '\0';
    if (read_boot_id(id) && stat("/proc/self/ns/net", &network) == 0 &&
        stat("/proc/self/ns/user", &users) == 0) {
        int n = snprintf(text, CADRE_MACHINE_BYTES, "%s/%ju/%ju/%ju", id,
            (uintmax_t)network.st_ino, (uintmax_t)users.st_ino,
            (uintmax_t)geteuid());
        if (n >= CADRE_MACHINE_BYTES) {
            text[0] = '\0';
        }
    }
}
