// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/folder.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[] = "/tmp/cadre-folder-XXXXXX";
static char path[64];

static void write_into(const char *folder, const char *name)
{
    char file[128];
    snprintf(file, sizeof(file), "%s/%s", folder, name);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}

static bool has(const char *folder, const char *name)
{
    char file[128];
    snprintf(
        file, sizeof(file), "%s%s%s", folder, *name == '\0' ? "" : "/", name);
    return access(file, F_OK) == 0;
}

static void count(const char *name, void *ctx)
{
    (void)name;
    ++*(int *)ctx;
}

static int entries(const char *folder)
{
    int n = 0;
    CHECK_OK(cadre_folder_list(folder, count, &n));
    return n;
}

static void a_folder_is_there_when_it_is_committed(void **state)
{
    (void)state;
    cadre_new_folder f;
    CHECK_OK(cadre_new_folder_open(path, &f));
    write_into(f.aside, "a");
    assert_false(has(path, ""));
    CHECK_OK(cadre_new_folder_commit(&f));
    assert_true(has(path, "a"));
    assert_int_equal(entries(home), 1);
    cadre_new_folder_discard(&f); // nothing
    assert_true(has(path, "a"));
}

// Another folder takes the place of the one at path, which has other names too.
static void replace_by_name(const char *name)
{
    cadre_new_folder f;
    CHECK_OK(cadre_new_folder_open(name, &f));
    write_into(f.aside, "b");
    CHECK_OK(cadre_new_folder_commit(&f));
    assert_false(has(path, "a"));
    assert_true(has(path, "b"));
    assert_int_equal(entries(home), 1);
}

static void another_takes_the_place_of_the_one_before(void **state)
{
    a_folder_is_there_when_it_is_committed(state);
    char with_slash[80];
    snprintf(with_slash, sizeof(with_slash), "%s//", path);
    replace_by_name(with_slash);
}

static void a_path_through_the_folder_itself_is_the_folder(void **state)
{
    a_folder_is_there_when_it_is_committed(state);
    char through[80];
    snprintf(through, sizeof(through), "%s/../new", path);
    replace_by_name(through);

    snprintf(through, sizeof(through), "%s/.", path);
    cadre_new_folder f;
    CHECK_OK(cadre_new_folder_open(through, &f));
    CHECK_FAILS(cadre_new_folder_commit(&f), CADRE_ERR_IO, path);
    assert_true(has(path, "b"));
    assert_int_equal(entries(path), 1);
}

static void what_is_given_up_leaves_nothing(void **state)
{
    a_folder_is_there_when_it_is_committed(state);
    cadre_new_folder f;
    CHECK_OK(cadre_new_folder_open(path, &f));
    write_into(f.aside, "b");
    cadre_new_folder_discard(&f);
    assert_true(has(path, "a"));
    assert_int_equal(entries(home), 1);
}

static void what_is_left_over_is_emptied(void **state)
{
    (void)state;
    char aside[80];
    snprintf(aside, sizeof(aside), "%s" CADRE_ASIDE, path);
    assert_int_equal(mkdir(aside, 0777), 0);
    write_into(aside, "old");
    cadre_new_folder f;
    CHECK_OK(cadre_new_folder_open(path, &f));
    assert_int_equal(entries(f.aside), 0);
    CHECK_OK(cadre_new_folder_commit(&f));

    // A link there is removed, and not what it leads to.
    write_into(path, "kept");
    assert_int_equal(symlink(path, aside), 0);
    CHECK_OK(cadre_new_folder_open(path, &f));
    assert_true(has(path, "kept"));
    cadre_new_folder_discard(&f);
}

static void failures_name_the_path(void **state)
{
    a_folder_is_there_when_it_is_committed(state);
    char below[80];
    snprintf(below, sizeof(below), "%s/a/b", path);
    cadre_new_folder f;
    CHECK_FAILS(cadre_new_folder_open(below, &f), CADRE_ERR_IO, below);
    int n = 0;
    CHECK_FAILS(cadre_folder_list(below, count, &n), CADRE_ERR_IO, below);
    snprintf(below, sizeof(below), "%s/none", path);
    CHECK_FAILS(
        cadre_folder_list(below, count, &n), CADRE_ERR_NOT_FOUND, below);
    CHECK_OK(cadre_folder_remove(below));

    // Folders in a folder are nobody's to remove.
    assert_int_equal(mkdir(below, 0777), 0);
    CHECK_FAILS(cadre_folder_remove(path), CADRE_ERR_IO, path);
    char deep[128];
    snprintf(deep, sizeof(deep), "%s.old" CADRE_ASIDE "/none", path);
    assert_int_equal(rmdir(deep), 0);
}

static int remove_all(void **state)
{
    (void)state;
    char old[80];
    snprintf(old, sizeof(old), "%s.old" CADRE_ASIDE, path);
    return cadre_folder_remove(path) == CADRE_OK &&
                   cadre_folder_remove(old) == CADRE_OK
               ? 0
               : -1;
}

int main(void)
{
    if (mkdtemp(home) == NULL) {
        return 1;
    }
    snprintf(path, sizeof(path), "%s/new", home);
#define CLEAN(test) cmocka_unit_test_teardown(test, remove_all)
    const struct CMUnitTest tests[] = {
        CLEAN(a_folder_is_there_when_it_is_committed),
        CLEAN(another_takes_the_place_of_the_one_before),
        CLEAN(a_path_through_the_folder_itself_is_the_folder),
        CLEAN(what_is_given_up_leaves_nothing),
        CLEAN(what_is_left_over_is_emptied),
        CLEAN(failures_name_the_path),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(home);
    return failed;
}
