// SPDX-License-Identifier: Apache-2.0
//
// Cadre: data-parallel training.  This header brings the whole of libcadre:
//
//     group.h    who we are and whom we talk to; the collectives
//     model.h    what is trained
//     engine.h   one step: leaves, gradients, update
//     launch.h   what `cadre run` uses, for programs that start their own ranks
//     log.h      where log lines go
//
// README.md shows what has to change in a training loop.

#ifndef CADRE_CADRE_H
#define CADRE_CADRE_H

#define CADRE_VERSION_MAJOR 0
#define CADRE_VERSION_MINOR 1
#define CADRE_VERSION_PATCH 0

#include "cadre/engine.h"
#include "cadre/group.h"
#include "cadre/launch.h"
#include "cadre/log.h"
#include "cadre/model.h"
#include "cadre/status.h"
#include "cadre/types.h"

#endif // CADRE_CADRE_H
