// SPDX-License-Identifier: Apache-2.0
//
// Checks of the network: what ranks on other hosts would come through.

#define _DEFAULT_SOURCE
#include "doctor.h"

#include "number.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// Whether a connection through 127.0.0.1 comes about; both ends are closed.
static bool connects(int listener, int caller)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t nbytes = sizeof(address);
    struct sockaddr *at = (struct sockaddr *)&address;
    return bind(listener, at, nbytes) == 0 && listen(listener, 1) == 0 &&
           getsockname(listener, at, &nbytes) == 0 &&
           connect(caller, at, nbytes) == 0;
}

void doctor_loopback(doctor_finding *f)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool works = listener >= 0 && caller >= 0 && connects(listener, caller);
    int error = errno;
    if (listener >= 0) {
        close(listener);
    }
    if (caller >= 0) {
        close(caller);
    }
    if (works) {
        snprintf(f->found, sizeof(f->found), "connections work");
        return;
    }
    char reason[128] = "";
    (void)strerror_r(error, reason, sizeof(reason));
    f->state = DOCTOR_WARN;
    snprintf(f->found, sizeof(f->found), "no connection: %s", reason);
    snprintf(f->fix, sizeof(f->fix),
        "bring it up (`ip link set lo up`); ranks that other launchers start "
        "meet there");
}

// The speed that the driver states, in Mbit/s; 0 where it states none.
static uint64_t speed_of(const char *name)
{
    char path[128];
    char text[32];
    const char *at = text;
    uint64_t speed = 0;
    snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        // A driver that does not know says -1.
        bool stated =
            fgets(text, sizeof(text), file) != NULL && count_take(&at, &speed);
        fclose(file);
        return stated ? speed : 0;
    }
    return 0;
}

static void append_interface(doctor_finding *f, const struct ifaddrs *i)
{
    char address[INET_ADDRSTRLEN] = "";
    const struct sockaddr_in *in = (const void *)i->ifa_addr;
    (void)inet_ntop(AF_INET, &in->sin_addr, address, sizeof(address));
    uint64_t speed = speed_of(i->ifa_name);
    size_t used = strlen(f->found);
    snprintf(f->found + used, sizeof(f->found) - used, "%s%s %s",
        used == 0 ? "" : ", ", i->ifa_name, address);
    used = strlen(f->found);
    if (speed > 0) {
        snprintf(f->found + used, sizeof(f->found) - used,
            " (%" PRIu64 " Mbit/s)", speed);
    }
}

void doctor_interfaces(doctor_finding *f)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) == 0) {
        for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
            bool useful = i->ifa_addr != NULL &&
                          i->ifa_addr->sa_family == AF_INET &&
                          (i->ifa_flags & IFF_UP) != 0 &&
                          (i->ifa_flags & IFF_LOOPBACK) == 0;
            if (useful) {
                append_interface(f, i);
            }
        }
        freeifaddrs(all);
    }
    if (f->found[0] == '\0') {
        f->state = DOCTOR_SKIP;
        snprintf(f->found, sizeof(f->found),
            "none but loopback: this host trains alone");
    }
}
