// SPDX-License-Identifier: Apache-2.0

#include "train/report.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "cadre/train.h"
#include "train/page.h"
#include <inttypes.h>
#include <string.h>

// Both themes, and shapes that do without colour: lines differ in their dashes
// too.
static const char *const styles[] = {
    ":root{color-scheme:light dark;--bg:#f6f7f8;--card:#fff;--ink:#1b2126;"
    "--soft:#5c6872;--rule:#dfe4e8;--grid:#e9edf0;--c0:#2166ac;--c1:#c55a11;"
    "--c2:#2e8b57;--c3:#8451a8;--c4:#b3335f;--c5:#0f8a94;--c6:#7a6a00;"
    "--c7:#5a6b7b;--idle:#cfd6dc;--on:#fff}\n",
    "@media(prefers-color-scheme:dark){:root{--bg:#12161a;--card:#1a2026;"
    "--ink:#e6eaee;--soft:#9aa6b1;--rule:#2e363e;--grid:#262e36;--c0:#6fb1f0;"
    "--c1:#f0a060;--c2:#6cc795;--c3:#c49be6;--c4:#ee86a8;--c5:#5fccd6;"
    "--c6:#d6c455;--c7:#a5b3c0;--idle:#4a5560;--on:#10151a}}\n",
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);"
    "color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',"
    "Roboto,'DejaVu Sans',sans-serif}"
    "main{max-width:1000px;margin:0 auto;padding:28px 20px 48px}"
    "h1{font-size:26px;line-height:1.2;margin:0 0 4px}"
    "h2{font-size:17px;margin:0 0 2px}"
    "p{margin:0 0 10px}.lead,.about,.note,.none{color:var(--soft)}"
    ".about,.note,.none{font-size:13.5px}\n",
    "section,header{background:var(--card);border:1px solid var(--rule);"
    "border-radius:8px;padding:18px 20px;margin:0 0 16px}"
    "dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(190px,1fr));"
    "gap:10px 22px;margin:14px 0 0}"
    "dt{color:var(--soft);font-size:12.5px}dd{margin:0;font-weight:600;"
    "overflow-wrap:anywhere;font-variant-numeric:tabular-nums}"
    "pre{margin:4px 0 0;padding:10px 12px;background:var(--bg);"
    "border:1px solid var(--rule);border-radius:6px;overflow-x:auto;"
    "font-size:13px}code,pre,.hash{font-family:ui-monospace,'DejaVu Sans Mono',"
    "Menlo,Consolas,monospace}\n",
    ".plot{overflow-x:auto}svg{display:block;width:100%;min-width:640px;"
    "height:auto}.key{display:inline-block;margin:0 18px 6px 0;"
    "font-size:13px;color:var(--soft);white-space:nowrap}"
    ".key svg{display:inline-block;width:26px;min-width:0;height:12px;"
    "vertical-align:-1px;margin-right:6px}.plot+.key{margin-top:16px}\n",
    "text{font-size:12px;fill:var(--soft)}.end{text-anchor:end}"
    ".middle{text-anchor:middle}.on{fill:var(--on);font-size:11px}"
    ".grid,.mark{stroke:var(--grid);fill:none}.mark{stroke:var(--soft)}"
    ".line{fill:none;stroke-width:1.8;stroke-linejoin:round;"
    "stroke-linecap:round}.raw{stroke:var(--c0);stroke-width:1;opacity:.38}"
    ".main{stroke:var(--c0);stroke-width:2.2}"
    ".whole{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:2 4}"
    ".dot{fill:var(--card);stroke:var(--c1);stroke-width:2.2}"
    ".fill{fill:var(--c0);opacity:.2}\n",
    ".r0{stroke:var(--c0)}.r1{stroke:var(--c1);stroke-dasharray:7 3}"
    ".r2{stroke:var(--c2);stroke-dasharray:2 3}"
    ".r3{stroke:var(--c3);stroke-dasharray:9 3 2 3}"
    ".r4{stroke:var(--c4);stroke-dasharray:4 4}"
    ".r5{stroke:var(--c5);stroke-dasharray:12 4}"
    ".r6{stroke:var(--c6);stroke-dasharray:1 4}"
    ".r7{stroke:var(--c7);stroke-dasharray:6 2 1 2 1 2}\n",
    ".busy{fill:var(--c0)}.idle{fill:var(--idle)}.formula{fill:none;"
    "stroke:var(--c0);stroke-width:2}.reduce{fill:var(--c2)}"
    ".gather{fill:var(--c3)}.update{fill:var(--c7)}.exposed{fill:var(--c4)}"
    ".ready{fill:var(--ink)}.whole-step{fill:var(--idle);opacity:.55}\n",
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{text-align:right;padding:3px 22px 3px 0;"
    "border-bottom:1px solid var(--rule)}th{font-size:12.5px;font-weight:500;"
    "color:var(--soft)}footer{color:var(--soft);font-size:12.5px}\n",
};

void cadre_report_section(FILE *page, const char *heading, const char *text)
{
    fprintf(page, "<section>\n<h2>");
    cadre_page_text(page, heading);
    fprintf(page, "</h2>\n<p class=\"about\">");
    cadre_page_text(page, text);
    fprintf(page, "</p>\n");
}

void cadre_report_section_end(FILE *page)
{
    fprintf(page, "</section>\n");
}

void cadre_report_legend(
    FILE *page, cadre_legend_shape shape, const char *style, const char *text)
{
    fprintf(page, "<span class=\"key\"><svg viewBox=\"0 0 26 12\" "
                  "aria-hidden=\"true\">");
    switch (shape) {
    case CADRE_LEGEND_LINE:
        fprintf(page, "<path class=\"line %s\" d=\"M2 6H24\"/>", style);
        break;
    case CADRE_LEGEND_DOT:
        fprintf(
            page, "<circle class=\"%s\" r=\"4\" cx=\"13\" cy=\"6\"/>", style);
        break;
    case CADRE_LEGEND_AREA:
        fprintf(page,
            "<rect class=\"%s\" x=\"3\" y=\"1\" width=\"20\" height=\"10\"/>",
            style);
        break;
    case CADRE_LEGEND_TICK:
        fprintf(page,
            "<rect class=\"%s\" x=\"12\" y=\"2\" width=\"2\" height=\"8\"/>",
            style);
        break;
    }
    fprintf(page, "</svg>");
    cadre_page_text(page, text);
    fprintf(page, "</span>\n");
}

// --- the head: what the run was and what came of it

typedef enum fact_kind {
    FACT_TEXT,
    FACT_NUMBER,
    FACT_SECONDS,
    FACT_PERCENT,
    FACT_BYTES,
    FACT_LOSS,
} fact_kind;

// A field of the summary, as a path of one or two names.
static const struct {
    const char *label;
    const char *object; // NULL: at the top
    const char *field;
    fact_kind kind;
} facts[] = {
    {"ranks", NULL, "world_size", FACT_NUMBER},
    {"threads per rank", NULL, "threads", FACT_NUMBER},
    {"mode", NULL, "mode", FACT_TEXT},
    {"order of summation", NULL, "order", FACT_TEXT},
    {"transport", NULL, "transport", FACT_TEXT},
    {"leaves", NULL, "leaves", FACT_NUMBER},
    {"leaves per reduction", NULL, "fold", FACT_NUMBER},
    {"precision", NULL, "precision", FACT_TEXT},
    {"instruction set", NULL, "isa", FACT_TEXT},
    {"cadre", "library_versions", "cadre", FACT_TEXT},
    {"compute library", "library_versions", "compute", FACT_TEXT},
    {"steps", NULL, "steps", FACT_NUMBER},
    {"skipped steps", NULL, "skipped_steps", FACT_NUMBER},
    {"wall time", NULL, "wall_seconds", FACT_SECONDS},
    {"samples per second", NULL, "samples_per_second", FACT_NUMBER},
    {"tokens per second", NULL, "tokens_per_second", FACT_NUMBER},
    {"median step, ms", NULL, "step_ms_median", FACT_NUMBER},
    {"exposed, slowest rank", NULL, "exposed_fraction", FACT_PERCENT},
    {"loss, last 10 steps", NULL, "loss", FACT_LOSS},
    {"test loss", "eval", "loss", FACT_LOSS},
    {"test bits per byte", "eval", "bits_per_byte", FACT_LOSS},
    {"test accuracy", "eval", "accuracy", FACT_PERCENT},
    {"peak memory, largest rank", NULL, "peak_rss_bytes", FACT_BYTES},
    {"identity", NULL, "identity", FACT_TEXT},
    {"params_hash", NULL, "params_hash", FACT_TEXT},
};

static void write_fact(
    fact_kind kind, double value, char text[CADRE_PAGE_NUMBER_BYTES + 8])
{
    char number[CADRE_PAGE_NUMBER_BYTES];
    const char *unit = "";
    switch (kind) {
    case FACT_SECONDS:
        cadre_page_fixed(value, 1, number);
        unit = " s";
        break;
    case FACT_PERCENT:
        cadre_page_fixed(value * 100, 2, number);
        unit = " %";
        break;
    case FACT_BYTES:
        cadre_page_bytes(value, number);
        break;
    case FACT_LOSS:
        cadre_page_fixed(value, 4, number);
        break;
    case FACT_NUMBER:
    case FACT_TEXT:
        if (value == (double)(int64_t)value) {
            cadre_page_fixed(value, 0, number);
        } else {
            cadre_page_short(value, number);
        }
        break;
    }
    snprintf(text, CADRE_PAGE_NUMBER_BYTES + 8, "%s%s", number, unit);
}

static void put_facts(FILE *page, const json_t *summary)
{
    fprintf(page, "<dl>\n");
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        const json_t *object = facts[i].object == NULL
                                   ? summary
                                   : json_object_get(summary, facts[i].object);
        const json_t *value = json_object_get(object, facts[i].field);
        char number[CADRE_PAGE_NUMBER_BYTES + 8];
        const char *text = json_string_value(value);
        if (json_is_number(value)) {
            double plain = json_number_value(value);
            bool whole = plain > -1e15 && plain < 1e15;
            write_fact(whole ? facts[i].kind : FACT_LOSS, plain, number);
            text = number;
        }
        if (text == NULL) {
            continue;
        }
        fprintf(page, "<div><dt>%s</dt><dd>", facts[i].label);
        cadre_page_text(page, text);
        fprintf(page, "</dd></div>\n");
    }
    fprintf(page, "</dl>\n");
}

// How the run ended, in a sentence.
static void put_lead(FILE *page, const cadre_report_data *d)
{
    char text[256] = "This run has not ended, or was cut off.";
    const char *stopped =
        json_string_value(json_object_get(d->summary, "stopped_by"));
    const json_t *equal = json_object_get(d->summary, "replicas_equal");
    if (d->summary != NULL) {
        snprintf(text, sizeof(text), "%s%.32s.%s",
            stopped == NULL ? "The run was finished"
                            : "The run was stopped by ",
            stopped == NULL ? "" : stopped,
            json_is_true(equal) ? " The parameters of all ranks are the same."
            : json_is_false(equal) ? " The parameters of the ranks differ: a "
                                     "fault of the program."
                                   : "");
    }
    fprintf(page, "<p class=\"lead\">");
    cadre_page_text(page, text);
    fprintf(page, "</p>\n");
}

static void put_head(
    FILE *page, const cadre_train_config *config, const cadre_report_data *d)
{
    fprintf(page, "<!DOCTYPE html>\n<html lang=\"en\"><head>"
                  "<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                  "content=\"width=device-width, initial-scale=1\">\n<title>");
    cadre_page_text(page, config->recipe);
    fprintf(page, " - cadre report</title>\n<style>\n");
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++) {
        fputs(styles[i], page);
    }
    fprintf(page, "</style></head>\n<body><main>\n<header>\n<h1>");
    cadre_page_text(page, config->recipe);
    fprintf(page, "</h1>\n");
    put_lead(page, d);
    put_facts(page, d->summary);
    const char *command =
        json_string_value(json_object_get(d->summary, "reproduce"));
    if (command != NULL) {
        fprintf(page, "<dl><div style=\"grid-column:1/-1\"><dt>the same "
                      "parameters again</dt>\n<pre>");
        cadre_page_text(page, command);
        fprintf(page, "</pre></div></dl>\n");
    }
    fprintf(page, "</header>\n");
}

// --- the page

static cadre_status put_parts(FILE *page, const cadre_train_config *config,
    const cadre_report_data *d, const cadre_report_trace *t)
{
    put_head(page, config, d);
    CADRE_TRY(cadre_report_loss(page, d));
    CADRE_TRY(cadre_report_throughput(page, d));
    CADRE_TRY(cadre_report_ranks(page, d));
    cadre_report_overlap(page, t);
    cadre_report_bytes(page, d);
    cadre_report_evaluations(page, d);
    fprintf(page, "<footer>Made by cadre from metrics.jsonl, summary.json and "
                  "trace.json; `cadre report` makes it again.</footer>\n"
                  "</main></body></html>\n");
    return CADRE_OK;
}

static cadre_status write_page(const cadre_train_config *config,
    const cadre_report_data *d, const cadre_report_trace *t)
{
    char *path = cadre_path_join(config->out, "report.html");
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_new_file file;
    cadre_status status = cadre_new_file_open(path, &file);
    cadre_free(path);
    CADRE_TRY(status);
    status = put_parts(file.stream, config, d, t);
    if (status == CADRE_OK) {
        status = cadre_new_file_commit(&file);
    }
    cadre_new_file_discard(&file);
    return status;
}

cadre_status cadre_report(const cadre_train_config *config)
{
    if (config == NULL || config->out[0] == '\0') {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_report needs a configuration with the run's folder, out");
    }
    cadre_report_data data;
    cadre_report_trace trace = {0};
    CADRE_TRY(cadre_report_data_read(config->out, &data));
    cadre_status status = cadre_report_trace_read(config->out, &trace);
    if (status == CADRE_OK) {
        status = write_page(config, &data, &trace);
    }
    cadre_report_trace_fini(&trace);
    cadre_report_data_fini(&data);
    return status;
}
