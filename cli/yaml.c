// SPDX-License-Identifier: Apache-2.0
//
// libyaml tells of a file in events.  Reading turns them into a list of dotted
// keys, since the recipe, wherever it stands, decides what the other keys start
// from.

#include "yaml.h"

#include "keys.h"
#include "path.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MOST_ENTRIES = 128, MOST_LEVELS = 4, KEY_BYTES = 128 };

typedef struct entry {
    char key[KEY_BYTES];
    char value[CADRE_PATH_BYTES];
    size_t line; // from 1
} entry;

typedef struct reader {
    const char *path;
    yaml_parser_t parser;
    entry *entries; // MOST_ENTRIES
    int n_entries;
    char *problem;
} reader;

static bool refuse(reader *r, size_t line, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

static bool refuse(reader *r, size_t line, const char *format, ...)
{
    int used = snprintf(
        r->problem, YAML_PROBLEM_BYTES, "%s, line %zu: ", r->path, line);
    va_list arguments;
    va_start(arguments, format);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the line above does
    vsnprintf(r->problem + used, YAML_PROBLEM_BYTES - (size_t)used, format,
        arguments);
    va_end(arguments);
    // Words of the file are shown, but no commands to the terminal in them.
    for (char *at = r->problem; *at != '\0'; at++) {
        if (*at > 0 && *at < ' ') {
            *at = '?';
        }
    }
    return false;
}

static bool next_event(reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event) == 0) {
        return refuse(r, r->parser.problem_mark.line + 1, "%s",
            r->parser.problem != NULL ? r->parser.problem : "no YAML");
    }
    return true;
}

static const char *text_of(const yaml_event_t *event)
{
    return (const char *)event->data.scalar.value;
}

static size_t line_of(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

static bool add_entry(reader *r, const char *key, const yaml_event_t *event)
{
    for (int i = 0; i < r->n_entries; i++) {
        if (strcmp(r->entries[i].key, key) == 0) {
            return refuse(r, line_of(event), "%s stands in line %zu already",
                key, r->entries[i].line);
        }
    }
    size_t nbytes = event->data.scalar.length;
    if (r->n_entries == MOST_ENTRIES || nbytes >= CADRE_PATH_BYTES ||
        strlen(text_of(event)) != nbytes) {
        return refuse(r, line_of(event),
            "%s: too many keys, or a value too long or with a NUL", key);
    }
    entry *e = &r->entries[r->n_entries++];
    snprintf(e->key, sizeof(e->key), "%s", key);
    snprintf(e->value, sizeof(e->value), "%s", text_of(event));
    e->line = line_of(event);
    return true;
}

static bool read_map(reader *r, const char *prefix, int level);

// The value of a key: a scalar, or a map with keys of its own.
static bool read_value(
    reader *r, const char *prefix, const yaml_event_t *name, int level)
{
    char key[KEY_BYTES];
    int n = snprintf(key, sizeof(key), "%s%s%s", prefix,
        *prefix == '\0' ? "" : ".", text_of(name));
    if (n >= KEY_BYTES || strlen(text_of(name)) != name->data.scalar.length) {
        return refuse(r, line_of(name), "a key is too long, or has a NUL");
    }
    yaml_event_t event;
    if (!next_event(r, &event)) {
        return false;
    }
    bool taken;
    if (event.type == YAML_SCALAR_EVENT) {
        taken = add_entry(r, key, &event);
    } else if (event.type == YAML_MAPPING_START_EVENT && level < MOST_LEVELS) {
        taken = read_map(r, key, level + 1);
    } else if (event.type == YAML_ALIAS_EVENT) {
        taken = refuse(r, line_of(&event),
            "%s: '*%s' stands for something else: write that out", key,
            (const char *)event.data.alias.anchor);
    } else {
        taken =
            refuse(r, line_of(&event), "%s: a value or keys are expected", key);
    }
    yaml_event_delete(&event);
    return taken;
}

// What follows the start of a map, its end included.
static bool read_map(reader *r, const char *prefix, int level)
{
    for (;;) {
        yaml_event_t name;
        if (!next_event(r, &name)) {
            return false;
        }
        bool ended = name.type == YAML_MAPPING_END_EVENT;
        bool taken =
            ended || (name.type == YAML_SCALAR_EVENT
                             ? read_value(r, prefix, &name, level)
                             : refuse(r, line_of(&name), "a key is expected"));
        yaml_event_delete(&name);
        if (ended || !taken) {
            return taken;
        }
    }
}

// One document, which is a map.  An empty file is an empty map.
static bool read_file(reader *r)
{
    bool taken = true;
    bool ended = false;
    int n_maps = 0;
    while (taken && !ended) {
        yaml_event_t event;
        if (!next_event(r, &event)) {
            return false;
        }
        switch (event.type) {
        case YAML_STREAM_END_EVENT:
            ended = true;
            break;
        case YAML_MAPPING_START_EVENT:
            n_maps++;
            taken = n_maps == 1 ? read_map(r, "", 1)
                                : refuse(r, line_of(&event),
                                      "a second document begins");
            break;
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        default:
            taken = refuse(r, line_of(&event), "keys are expected");
        }
        yaml_event_delete(&event);
    }
    return taken;
}

// NULL if the file lacks the key.
static const entry *find(const reader *r, const char *key)
{
    for (int i = 0; i < r->n_entries; i++) {
        if (strcmp(r->entries[i].key, key) == 0) {
            return &r->entries[i];
        }
    }
    return NULL;
}

static bool apply(reader *r, cadre_train_config *config)
{
    const entry *recipe = find(r, "recipe");
    if (recipe == NULL) {
        return refuse(r, 1, "the key 'recipe' is missing");
    }
    const entry *steps = find(r, "steps");
    const entry *epochs = find(r, "epochs");
    if (steps != NULL && epochs != NULL) {
        return refuse(r,
            steps->line > epochs->line ? steps->line : epochs->line,
            "steps and epochs both say how long: give one");
    }
    if (cadre_recipe_config(recipe->value, config) != CADRE_OK) {
        return refuse(r, recipe->line, "%s", cadre_error_text());
    }
    for (int i = 0; i < r->n_entries; i++) {
        const entry *e = &r->entries[i];
        char problem[KEY_PROBLEM_BYTES];
        if (e != recipe && !key_set(config, e->key, e->value, problem)) {
            return refuse(r, e->line, "%s", problem);
        }
    }
    return true;
}

yaml_outcome yaml_read(const char *path, cadre_train_config *config,
    char problem[YAML_PROBLEM_BYTES])
{
    char reason[PATH_REASON_BYTES];
    FILE *stream = path_open_regular(path, reason);
    if (stream == NULL) {
        int error = errno;
        snprintf(
            problem, YAML_PROBLEM_BYTES, "cannot read '%s': %s", path, reason);
        return error == ENOENT || error == ENOTDIR ? YAML_MISSING
                                                   : YAML_REFUSED;
    }
    reader r = {
        .path = path,
        .entries = calloc(MOST_ENTRIES, sizeof(entry)),
        .problem = problem,
    };
    bool taken = false;
    if (r.entries == NULL || yaml_parser_initialize(&r.parser) == 0) {
        snprintf(problem, YAML_PROBLEM_BYTES, "out of memory");
    } else {
        yaml_parser_set_input_file(&r.parser, stream);
        taken = read_file(&r) && apply(&r, config);
        yaml_parser_delete(&r.parser);
    }
    free(r.entries);
    fclose(stream);
    return taken ? YAML_READ : YAML_REFUSED;
}

// libyaml's functions take their text without const, and do not change it.
static yaml_char_t *bytes(char *text)
{
    return (yaml_char_t *)text;
}

static bool emit_text(yaml_emitter_t *emitter, char *text)
{
    // The emitter lets more pass than its reader takes.
    if (!path_is_utf8(text)) {
        return false;
    }
    // Left to itself the emitter writes nothing for an empty text: a null.
    yaml_scalar_style_t style =
        *text == '\0' ? YAML_SINGLE_QUOTED_SCALAR_STYLE : YAML_ANY_SCALAR_STYLE;
    yaml_event_t event;
    return yaml_scalar_event_initialize(
               &event, NULL, NULL, bytes(text), -1, 1, 1, style) != 0 &&
           yaml_emitter_emit(emitter, &event) != 0;
}

static bool emit_map_start(yaml_emitter_t *emitter)
{
    yaml_event_t event;
    return yaml_mapping_start_event_initialize(
               &event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE) != 0 &&
           yaml_emitter_emit(emitter, &event) != 0;
}

static bool emit_map_end(yaml_emitter_t *emitter)
{
    yaml_event_t event;
    return yaml_mapping_end_event_initialize(&event) != 0 &&
           yaml_emitter_emit(emitter, &event) != 0;
}

// "a.b" opens the map a, unless the key before did, and closes that of before.
static bool emit_key(
    yaml_emitter_t *emitter, const char *name, char open_map[KEY_BYTES])
{
    const char *dot = strchr(name, '.');
    char map[KEY_BYTES] = "";
    if (dot != NULL) {
        snprintf(map, sizeof(map), "%.*s", (int)(dot - name), name);
    }
    if (strcmp(map, open_map) != 0) {
        if (*open_map != '\0' && !emit_map_end(emitter)) {
            return false;
        }
        if (*map != '\0' &&
            !(emit_text(emitter, map) && emit_map_start(emitter))) {
            return false;
        }
        snprintf(open_map, KEY_BYTES, "%s", map);
    }
    char rest[KEY_BYTES];
    snprintf(rest, sizeof(rest), "%s", dot != NULL ? dot + 1 : name);
    return emit_text(emitter, rest);
}

static bool emit_keys(const cadre_train_config *config, yaml_emitter_t *emitter)
{
    char open_map[KEY_BYTES] = "";
    for (int i = 0; i < key_count(); i++) {
        char value[CADRE_PATH_BYTES];
        if (key_get(config, i, value) &&
            !(emit_key(emitter, key_name(i), open_map) &&
                emit_text(emitter, value))) {
            return false;
        }
    }
    return *open_map == '\0' || emit_map_end(emitter);
}

static bool emit_document(
    const cadre_train_config *config, yaml_emitter_t *emitter)
{
    yaml_event_t event;
    return yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) !=
               0 &&
           yaml_emitter_emit(emitter, &event) != 0 &&
           yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1) !=
               0 &&
           yaml_emitter_emit(emitter, &event) != 0 && emit_map_start(emitter) &&
           emit_keys(config, emitter) && emit_map_end(emitter) &&
           yaml_document_end_event_initialize(&event, 1) != 0 &&
           yaml_emitter_emit(emitter, &event) != 0 &&
           yaml_stream_end_event_initialize(&event) != 0 &&
           yaml_emitter_emit(emitter, &event) != 0;
}

bool yaml_write(const cadre_train_config *config, FILE *stream)
{
    yaml_emitter_t emitter;
    if (yaml_emitter_initialize(&emitter) == 0) {
        return false;
    }
    yaml_emitter_set_output_file(&emitter, stream);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1); // paths are not folded
    bool written = emit_document(config, &emitter);
    yaml_emitter_delete(&emitter);
    return written;
}
