// SPDX-License-Identifier: Apache-2.0
//
// Configurations: a YAML file, or lines of KEY=VALUE as --set takes them.  What
// is accepted is written, and reads back to the same.

#include "fuzz.h"

#include "keys.h"
#include "yaml.h"
#include <stdlib.h>
#include <string.h>

// What yaml_write() writes; NULL if it cannot, as where a path is no UTF-8.
static char *written(const cadre_train_config *config, size_t *nbytes)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, nbytes);
    FUZZ_CHECK(stream != NULL);
    bool ok = yaml_write(config, stream);
    FUZZ_CHECK(fclose(stream) == 0);
    if (!ok) {
        free(text);
        return NULL;
    }
    return text;
}

static bool read_text(
    const uint8_t *data, size_t nbytes, cadre_train_config *config)
{
    static char problem[YAML_PROBLEM_BYTES];
    problem[0] = '\0';
    yaml_outcome outcome = yaml_read(fuzz_file(data, nbytes), config, problem);
    FUZZ_CHECK(outcome != YAML_MISSING);
    FUZZ_CHECK((outcome == YAML_READ) == (problem[0] == '\0'));
    return outcome == YAML_READ;
}

static void check_comes_back(const cadre_train_config *config)
{
    static cadre_train_config other;
    size_t nbytes;
    size_t nbytes_again;
    char *text = written(config, &nbytes);
    if (text == NULL) {
        return;
    }
    FUZZ_CHECK(read_text((const uint8_t *)text, nbytes, &other));
    char *again = written(&other, &nbytes_again);
    FUZZ_CHECK(again != NULL && nbytes_again == nbytes);
    FUZZ_CHECK(memcmp(text, again, nbytes) == 0);
    free(again);
    free(text);
}

// A line KEY=VALUE of the input, without NUL bytes, which no argument has.
static bool next_assignment(fuzz_input *in, char **key, char **value)
{
    static char line[2 * CADRE_PATH_BYTES];
    size_t n = 0;
    if (in->left == 0) {
        return false;
    }
    for (uint8_t c = fuzz_byte(in); c != '\n' && c != 0; c = fuzz_byte(in)) {
        if (n < sizeof(line) - 1) {
            line[n++] = (char)c;
        }
    }
    line[n] = '\0';
    *key = line;
    char *equals = strchr(line, '=');
    *value = equals == NULL ? line + n : equals + 1;
    if (equals != NULL) {
        *equals = '\0';
    }
    return true;
}

static void set_keys(fuzz_input *in, cadre_train_config *config)
{
    char *key;
    char *value;
    char problem[KEY_PROBLEM_BYTES];
    FUZZ_CHECK(cadre_recipe_config("mlp-fashion", config) == CADRE_OK);
    while (next_assignment(in, &key, &value)) {
        if (!key_set(config, key, value, problem)) {
            FUZZ_CHECK(memchr(problem, 0, sizeof(problem)) != NULL);
            FUZZ_CHECK(problem[0] != '\0');
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static cadre_train_config config;
    fuzz_input in = {data, nbytes};
    if (fuzz_byte(&in) % 2 == 0) {
        set_keys(&in, &config);
    } else if (!read_text(in.data, in.left, &config)) {
        return 0;
    }
    check_comes_back(&config);
    return 0;
}
