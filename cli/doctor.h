// SPDX-License-Identifier: Apache-2.0
//
// What `cadre doctor` looks at: one function per check.  A check says what it
// found and, unless all is well, what to do about it.

#ifndef CADRE_CLI_DOCTOR_H
#define CADRE_CLI_DOCTOR_H

enum { DOCTOR_TEXT_BYTES = 512 };

typedef enum doctor_state {
    DOCTOR_OK,
    DOCTOR_WARN, // works, but less well than it could
    DOCTOR_FAIL, // runs will be refused or break
    DOCTOR_SKIP, // not there, and not needed
} doctor_state;

typedef struct doctor_finding {
    doctor_state state;
    char found[DOCTOR_TEXT_BYTES];
    char fix[DOCTOR_TEXT_BYTES]; // empty if nothing is to be done
} doctor_finding;

// This host (doctor_host.c).
void doctor_cores(doctor_finding *f);
void doctor_instructions(doctor_finding *f);
void doctor_memory(doctor_finding *f);
void doctor_shared_memory(doctor_finding *f);
void doctor_dev_shm(doctor_finding *f);
void doctor_descriptors(doctor_finding *f);
void doctor_processes(doctor_finding *f);
void doctor_clock(doctor_finding *f);

// Its network (doctor_network.c).
void doctor_loopback(doctor_finding *f);
void doctor_interfaces(doctor_finding *f);

#endif // CADRE_CLI_DOCTOR_H
