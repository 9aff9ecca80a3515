// SPDX-License-Identifier: Apache-2.0
//
// Assertions, for our own mistakes only: what the world can cause is a status.
// They are compiled into every build but the release; arguments must not have
// side effects.

#ifndef CADRE_BASE_CHECK_H
#define CADRE_BASE_CHECK_H

#if defined(CADRE_ASSERTIONS)
_Noreturn void cadre_assertion_failed(
    const char *expression, const char *file, int line);
#define CADRE_ASSERT(expression) \
    ((expression) ? (void)0      \
                  : cadre_assertion_failed(#expression, __FILE__, __LINE__))
#else
#define CADRE_ASSERT(expression) ((void)sizeof(!(expression)))
#endif

#endif // CADRE_BASE_CHECK_H
