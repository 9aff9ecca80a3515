// SPDX-License-Identifier: Apache-2.0
//
// Plots and the numbers in them, as text.

#include "train/svg.h"

#include "support/check.h"
#include "train/page.h"
#include <math.h>
#include <stdlib.h>

static void check_fixed(double value, int decimals, const char *wanted)
{
    char text[CADRE_PAGE_NUMBER_BYTES];
    cadre_page_fixed(value, decimals, text);
    assert_string_equal(text, wanted);
}

static void numbers_have_the_decimals_asked_for(void **state)
{
    (void)state;
    check_fixed(0, 0, "0");
    check_fixed(-0.0, 2, "0.00");
    check_fixed(1.005, 1, "1.0");
    check_fixed(-1.25, 2, "-1.25");
    check_fixed(0.999, 2, "1.00");
    check_fixed(-0.001, 2, "0.00");
    check_fixed(12345678901.5, 1, "12345678901.5");
    check_fixed((double)NAN, 2, "-");
    check_fixed((double)-INFINITY, 2, "-");
    check_fixed(1e300, 3, "1e+300");
}

static void short_numbers_have_three_digits(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *wanted;
    } cases[] = {{0, "0"}, {0.01234, "0.0123"}, {1.5, "1.50"}, {99.94, "99.9"},
        {4567, "4567"}, {12345, "12.3k"}, {-1234567, "-1.23M"},
        {2.5e13, "25.0T"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[CADRE_PAGE_NUMBER_BYTES];
        cadre_page_short(cases[i].value, text);
        assert_string_equal(text, cases[i].wanted);
    }
    char text[CADRE_PAGE_NUMBER_BYTES];
    cadre_page_bytes(1023, text);
    assert_string_equal(text, "1023 B");
    cadre_page_bytes(1536, text);
    assert_string_equal(text, "1.50 KiB");
    cadre_page_bytes(3e18, text);
    assert_string_equal(text, "2728484 TiB");
}

// What is written into *page until close_page().
static char *written;
static size_t written_bytes;

static FILE *open_page(void)
{
    FILE *page = open_memstream(&written, &written_bytes);
    assert_non_null(page);
    return page;
}

static void close_page(FILE *page)
{
    assert_int_equal(fclose(page), 0);
}

static void text_cannot_become_markup(void **state)
{
    (void)state;
    FILE *page = open_page();
    cadre_page_text(page, "<b title=\"x\">R&D\n\x7f</b> \xc3\xa4");
    close_page(page);
    assert_string_equal(
        written, "&lt;b title=&quot;x&quot;&gt;R&amp;D  &lt;/b&gt; \xc3\xa4");
    free(written);
}

static void ticks_are_round_and_inside(void **state)
{
    (void)state;
    static const double ranges[][2] = {
        {0, 1}, {0.3, 17}, {-5, 5}, {1e-7, 3e-7}, {99000, 101000}, {7, 7.001}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const cadre_scale s = {ranges[i][0], ranges[i][1], 0, 100};
        cadre_tick ticks[CADRE_MOST_TICKS];
        int n = cadre_ticks(&s, 5, 0, ticks);
        assert_in_range(n, 2, CADRE_MOST_TICKS);
        for (int k = 0; k < n; k++) {
            assert_true(ticks[k].at >= -1e-6 && ticks[k].at <= 100 + 1e-6);
            for (int j = 0; j < k; j++) {
                assert_string_not_equal(ticks[k].text, ticks[j].text);
            }
        }
    }
    const cadre_scale steps = {0, 2, 0, 100};
    cadre_tick ticks[CADRE_MOST_TICKS];
    assert_int_equal(cadre_ticks(&steps, 10, 1, ticks), 3);
    assert_string_equal(ticks[1].text, "1");
}

static void a_scale_holds_what_is_finite(void **state)
{
    (void)state;
    const double values[] = {
        (double)NAN, 0.31, (double)INFINITY, 2.2, (double)NAN};
    cadre_scale s = {.lo = 1};
    cadre_scale_hold(&s, values, 5);
    assert_true(s.lo == 0.31 && s.hi == 2.2);
    cadre_scale_settle(&s);
    assert_true(s.lo <= 0.31 && s.hi >= 2.2 && s.lo >= 0 && s.hi <= 3);

    cadre_scale empty = {.lo = 1};
    cadre_scale_hold(&empty, values, 1);
    cadre_scale_settle(&empty);
    assert_true(empty.lo < empty.hi);
    cadre_scale point = {.lo = 1};
    cadre_scale_hold(&point, values + 1, 1);
    cadre_scale_settle(&point);
    assert_true(point.lo < 0.31 && point.hi > 0.31);
}

static size_t count(const char *text, char wanted)
{
    size_t n = 0;
    for (; *text != '\0'; text++) {
        n += *text == wanted;
    }
    return n;
}

enum { MANY = 100000 };

// Draws values over 0 .. n - 1 and returns the path's data.
static char *draw_line(const double *y, size_t n)
{
    static double x[MANY];
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)i;
    }
    cadre_plot plot = {.page = open_page(),
        .x = {0, (double)(n > 1 ? n - 1 : 1), 0, 800},
        .y = {0, 1, 200, 0}};
    cadre_plot_line(&plot, "main", x, y, n);
    close_page(plot.page);
    char *data = strstr(written, " d=\"");
    assert_non_null(data);
    return data + strlen(" d=\"");
}

static void short_lines_are_drawn_point_by_point(void **state)
{
    (void)state;
    const double y[] = {0, 1, 0.5};
    const char *data = draw_line(y, 3);
    assert_string_equal(data, "M0.00 200.00L400.00 0.00L800.00 100.00\"/>\n");
    free(written);
}

static void what_is_no_number_is_a_gap(void **state)
{
    (void)state;
    const double y[] = {
        (double)NAN, 1, (double)NAN, 0, 0.5, (double)INFINITY, 0.5};
    const char *data = draw_line(y, 7);
    // A point alone is a short stroke.
    assert_int_equal(count(data, 'M'), 3);
    assert_int_equal(count(data, 'L'), 1);
    assert_int_equal(count(data, 'm'), 2);
    free(written);
    const double none[] = {(double)NAN};
    assert_string_equal(draw_line(none, 1), "\"/>\n");
    free(written);
}

static void a_long_line_keeps_its_peaks(void **state)
{
    (void)state;
    static double y[MANY];
    for (size_t i = 0; i < MANY; i++) {
        y[i] = i % 2 == 0 ? 0.4 : 0.6;
    }
    y[61234] = 1;    // at coordinate 0
    y[77777] = 0.25; // at 150
    const char *data = draw_line(y, MANY);
    size_t n = count(data, 'M') + count(data, 'L');
    assert_in_range(n, 800, 2 * 802);
    assert_non_null(strstr(data, " 0.00L"));
    assert_non_null(strstr(data, " 150.00L"));
    free(written);
}

static void a_band_goes_there_and_back(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2, 3};
    const double lo[] = {0, 0.25, (double)NAN, 0.5};
    const double hi[] = {1, 0.75, 1, 0.75};
    cadre_plot plot = {
        .page = open_page(), .x = {0, 4, 0, 400}, .y = {0, 1, 100, 0}};
    cadre_plot_band(&plot, "fill", x, lo, hi, 4);
    close_page(plot.page);
    assert_non_null(strstr(written,
        "d=\"M0.00 100.00L100.00 75.00L100.00 25.00L0.00 0.00ZM300.00 50.00"
        "m-6 0h12V25.00h-12Z\""));
    free(written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_the_decimals_asked_for),
        cmocka_unit_test(short_numbers_have_three_digits),
        cmocka_unit_test(text_cannot_become_markup),
        cmocka_unit_test(ticks_are_round_and_inside),
        cmocka_unit_test(a_scale_holds_what_is_finite),
        cmocka_unit_test(short_lines_are_drawn_point_by_point),
        cmocka_unit_test(what_is_no_number_is_a_gap),
        cmocka_unit_test(a_long_line_keeps_its_peaks),
        cmocka_unit_test(a_band_goes_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
