// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the hub share.
//
//     hub.c         who is there: ranks come, say what they saw, and go
//     hub_judge.c   verdicts: how a rank was lost, and what only time tells

#ifndef CADRE_RENDEZVOUS_HUB_IMPL_H
#define CADRE_RENDEZVOUS_HUB_IMPL_H

#include "rendezvous/hub.h"

enum { HUB_NAME_BYTES = 160 };

typedef enum hub_presence {
    HUB_ABSENT,
    HUB_PRESENT,
    HUB_LEFT, // said goodbye, or ended well
    HUB_LOST, // hung up
} hub_presence;

typedef struct hub_member {
    hub_presence presence;
    int pid;
    char host[CADRE_HOST_BYTES];
    char address[CADRE_ADDRESS_BYTES];
    int timeout_ms;
    int64_t patient_until_ms;

    bool heard; // since the last tick
    int64_t silent_ms;

    bool suspected;
    int64_t suspected_until_ms; // then there is no more waiting for its ending
    bool needed;                // another rank waits for this one
    bool has_ended;
    cadre_ending ending;
} hub_member;

typedef struct hub_step {
    cadre_hub_action action;
    int rank;
} hub_step;

struct cadre_hub {
    cadre_hub_options options;
    bool welcomed;
    int n_joined;
    int64_t last_tick_ms; // 0: none yet
    cadre_verdict verdict;
    char refusal[256]; // of the last who was sent away; or ""
    // Since when nobody came, if somebody was refused: who is missing may be
    // who was refused.  0: nobody was.
    int64_t doubted_ms;
    int witnessed;     // the rank whose loss was first reported; or -1
    char witness[256]; // who reported it, and what was seen

    cadre_link link;
    cadre_link_offer *offers; // of all ranks

    // Every rank is released once at most; one welcome, one verdict.
    hub_step *steps;
    int n_steps;
    int next_step;

    hub_member members[]; // world_size of them
};

// hub.c

/** Hands out an action. */
void hub_push(cadre_hub *hub, cadre_hub_action action, int rank);

// hub_judge.c

/** "rank 3 (host a, pid 812)" */
void hub_name_rank(const cadre_hub *hub, int rank, char text[HUB_NAME_BYTES]);

/** Gives the verdict, unless there is one. */
void hub_pronounce(
    cadre_hub *hub, cadre_status status, int rank, const char *text);

/** Says how a rank was lost, as well as it is known. */
void hub_pronounce_lost(cadre_hub *hub, int rank);

#endif // CADRE_RENDEZVOUS_HUB_IMPL_H
