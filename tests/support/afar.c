// SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE // IFF_UP

#include "support/afar.h"

#include "support/check.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

bool find_afar(cadre_address *out)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    assert_int_equal(getifaddrs(&all), 0);
    for (struct ifaddrs *a = all; a != NULL && !found; a = a->ifa_next) {
        found = a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET &&
                (a->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;
        if (found) {
            *out = (cadre_address){.nbytes = sizeof(struct sockaddr_in)};
            memcpy(&out->storage, a->ifa_addr, out->nbytes);
        }
    }
    freeifaddrs(all);
    return found;
}

int connect_from_afar(const cadre_address *to)
{
    cadre_address loopback;
    assert_true(cadre_address_parse("127.0.0.1:0", &loopback));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(
        bind(fd, (struct sockaddr *)&loopback.storage, loopback.nbytes), 0);
    assert_int_equal(
        connect(fd, (const struct sockaddr *)&to->storage, to->nbytes), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}
