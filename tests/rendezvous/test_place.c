// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "rendezvous/place.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
    "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CADRE_RANK",
    "CADRE_WORLD_SIZE", "CADRE_LOCAL_RANK", "CADRE_LOCAL_WORLD_SIZE",
    "CADRE_STORE", "CADRE_SECRET_FD", "CADRE_SECRET_FILE", "CADRE_AUTH"};

// Sets the environment to "NAME=VALUE NAME=VALUE ..." and reads it.
static cadre_status read_place(const char *text, cadre_place *place)
{
    char copy[1024];
    snprintf(copy, sizeof(copy), "%s", text);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
    char *rest = NULL;
    for (char *entry = strtok_r(copy, " ", &rest); entry != NULL;
         entry = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(entry, '=');
        *value++ = '\0';
        setenv(entry, value, 1);
    }
    return cadre_place_from_environment(place);
}

static void is_alone_without_a_launcher(void **state)
{
    (void)state;
    cadre_place p;
    CHECK_OK(read_place("", &p));
    assert_int_equal(p.rank, 0);
    assert_int_equal(p.world_size, 1);
    assert_int_equal(p.local_rank, 0);
    assert_int_equal(p.local_world_size, 1);
    assert_string_equal(p.store, "");
    assert_false(p.hosts_hub);
    assert_string_equal(p.source, "alone");
}

static void reads_the_common_names(void **state)
{
    (void)state;
    cadre_place p;
    CHECK_OK(read_place("RANK=1 WORLD_SIZE=4 MASTER_ADDR=node1 "
                        "MASTER_PORT=2222 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
        &p));
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.world_size, 4);
    assert_int_equal(p.local_rank, 1);
    assert_int_equal(p.local_world_size, 2);
    assert_string_equal(p.store, "tcp:node1:2222");
    assert_false(p.hosts_hub);
    assert_string_equal(p.source, "RANK and WORLD_SIZE");

    CHECK_OK(
        read_place("RANK=0 WORLD_SIZE=4 MASTER_ADDR=::1 MASTER_PORT=2222", &p));
    assert_string_equal(p.store, "tcp:::1:2222");
    assert_true(p.hosts_hub);
    assert_int_equal(p.local_rank, 0);

    CHECK_OK(read_place("RANK=0 WORLD_SIZE=1", &p));
    assert_string_equal(p.store, "");
    assert_false(p.hosts_hub);
}

static void reads_what_the_launcher_says(void **state)
{
    (void)state;
    cadre_place p;
    CHECK_OK(read_place("CADRE_RANK=2 CADRE_WORLD_SIZE=3 CADRE_LOCAL_RANK=2 "
                        "CADRE_LOCAL_WORLD_SIZE=3 CADRE_STORE=fd:7 RANK=2 "
                        "WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=99",
        &p));
    assert_int_equal(p.rank, 2);
    assert_int_equal(p.local_rank, 2);
    assert_string_equal(p.store, "fd:7");
    assert_false(p.hosts_hub);
    assert_string_equal(p.source, "cadre run");

    CHECK_OK(
        read_place("CADRE_RANK=0 CADRE_WORLD_SIZE=3 CADRE_STORE=tcp:h:80", &p));
    assert_true(p.hosts_hub);
}

static void reads_what_proves(void **state)
{
    (void)state;
    cadre_place p;
    CHECK_OK(read_place("RANK=0 WORLD_SIZE=1", &p));
    assert_false(p.has_secret_fd);
    assert_null(p.secret_file);
    assert_false(p.believes_all);
    CHECK_OK(read_place("CADRE_SECRET_FD=0", &p));
    assert_true(p.has_secret_fd);
    assert_int_equal(p.secret_fd, 0);
    CHECK_OK(read_place("CADRE_SECRET_FILE=/a/b CADRE_AUTH=none", &p));
    assert_false(p.has_secret_fd);
    assert_string_equal(p.secret_file, "/a/b");
    assert_true(p.believes_all);
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    static const struct {
        const char *environment;
        const char *words;
    } cases[] = {
        {"RANK=abc WORLD_SIZE=2", "RANK is 'abc'"},
        {"RANK= WORLD_SIZE=2", "RANK is ''"},
        {"RANK=-1 WORLD_SIZE=2", "RANK is '-1'"},
        {"RANK=1x WORLD_SIZE=2", "RANK is '1x'"},
        {"RANK=99999999999999999999 WORLD_SIZE=2", "RANK is '9999"},
        {"RANK=5 WORLD_SIZE=2", "RANK is 5, but WORLD_SIZE is 2"},
        {"RANK=2 WORLD_SIZE=2", "ranks go from 0 to 1"},
        {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE is '0'"},
        {"RANK=0 WORLD_SIZE=5000", "from 1 to 4096"},
        {"RANK=abc", "RANK is 'abc'"},
        {"WORLD_SIZE=abc", "WORLD_SIZE is 'abc'"},
        {"RANK=+1 WORLD_SIZE=2", "RANK is '+1'"},
        {"WORLD_SIZE=2", "WORLD_SIZE is set, but RANK is not"},
        {"RANK=1", "RANK is set, but WORLD_SIZE is not"},
        {"RANK=0 WORLD_SIZE=2", "MASTER_ADDR is not set"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h", "MASTER_PORT is not set"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=0",
            "MASTER_PORT is '0'"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=70000",
            "MASTER_PORT is '70000'"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=+80",
            "MASTER_PORT is '+80'"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 LOCAL_RANK=2",
            "LOCAL_RANK is '2'"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1",
            "LOCAL_RANK is 1, but LOCAL_WORLD_SIZE is 1"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1", "LOCAL_RANK is not"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=3",
            "LOCAL_WORLD_SIZE is 3, but WORLD_SIZE is 2"},
        {"CADRE_RANK=1", "CADRE_WORLD_SIZE is not"},
        {"CADRE_STORE=fd:3", "CADRE_RANK and CADRE_WORLD_SIZE are not"},
        {"CADRE_RANK=1 CADRE_WORLD_SIZE=2", "CADRE_STORE is not set"},
        {"CADRE_RANK=1 CADRE_WORLD_SIZE=2 CADRE_STORE=fd:x",
            "CADRE_STORE is 'fd:x'"},
        {"CADRE_RANK=1 CADRE_WORLD_SIZE=2 CADRE_STORE=tcp:80",
            "CADRE_STORE is 'tcp:80'"},
        {"CADRE_RANK=1 CADRE_WORLD_SIZE=2 CADRE_STORE=tcp:h:+80",
            "CADRE_STORE is 'tcp:h:+80'"},
        {"CADRE_RANK=1 CADRE_WORLD_SIZE=2 CADRE_STORE=file:/x",
            "CADRE_STORE is 'file:/x'"},
        {"CADRE_RANK=1 CADRE_WORLD_SIZE=2 CADRE_STORE=fd:3 RANK=0",
            "CADRE_RANK is 1, but RANK is '0'"},
        {"CADRE_RANK=1 CADRE_WORLD_SIZE=2 CADRE_STORE=fd:3 WORLD_SIZE=3",
            "CADRE_WORLD_SIZE is 2, but WORLD_SIZE is '3'"},
        {"CADRE_SECRET_FD=x", "CADRE_SECRET_FD is 'x'"},
        {"CADRE_SECRET_FD=-1", "CADRE_SECRET_FD is '-1'"},
        {"CADRE_AUTH=hmac", "CADRE_AUTH is 'hmac', but it can only be 'none'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cadre_place p = {.rank = -7};
        CHECK_FAILS(read_place(cases[i].environment, &p), CADRE_ERR_INVALID_ARG,
            cases[i].words);
        assert_int_equal(p.rank, -7); // written on success only
    }
}

static void refuses_a_host_name_that_is_too_long(void **state)
{
    (void)state;
    char text[600];
    cadre_place p;
    snprintf(text, sizeof(text),
        "RANK=0 WORLD_SIZE=2 MASTER_PORT=1 MASTER_ADDR=%0400d", 0);
    CHECK_FAILS(read_place(text, &p), CADRE_ERR_INVALID_ARG, "MASTER_ADDR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_alone_without_a_launcher),
        cmocka_unit_test(reads_the_common_names),
        cmocka_unit_test(reads_what_the_launcher_says),
        cmocka_unit_test(reads_what_proves),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(refuses_a_host_name_that_is_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
