/* tests/graph/base/test_near_names.c: an error that names what there is: the nearest first, and never more than fits. */
#include "graph/base/names.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <weir/weir.h>

TestSuite(near_names, .timeout = 10);

static const char *text_of(const char *wanted, const char *const *list)
{
    static char text[NAMES_TEXT_BYTES];
    struct names names = {.wanted = wanted};
    for (; *list; list++)
        names_add(&names, *list);
    return names_text(&names, text, sizeof text);
}
#define TEXT(wanted, ...) text_of(wanted, (const char *const[]){__VA_ARGS__, NULL})

Test(near_names, the_nearest_comes_first_and_is_suggested)
{
    cr_expect_str_eq(TEXT("lsos", "x", "lr", "loss"), "; did you mean 'loss'? There are 'loss', 'lr' and 'x'");
    cr_expect_str_eq(TEXT("LOSS", "x", "loss"), "; did you mean 'loss'? There are 'loss' and 'x'");
    cr_expect_str_eq(TEXT("weight", "bias", "h0/up/weight"), "; did you mean 'h0/up/weight'? There are 'h0/up/weight' and 'bias'");
}

Test(near_names, what_is_like_none_of_them_gets_the_list_alone)
{
    cr_expect_str_eq(TEXT("temperature", "x", "loss"), "; there are 'x' and 'loss'");
    cr_expect_str_eq(TEXT("", "b", "a"), "; there are 'b' and 'a'");
    cr_expect_str_eq(TEXT(NULL, "b"), "; there is 'b'");
    cr_expect_str_eq(TEXT("a", NULL), "; there is none");
}

Test(near_names, a_name_that_is_added_again_counts_once)
{
    cr_expect_str_eq(TEXT("q", "loss", "loss", "x", "loss"), "; there are 'x' and 'loss'");
}

Test(near_names, of_many_the_rest_is_counted)
{
    char many[100][16], text[NAMES_TEXT_BYTES];
    struct names names = {.wanted = "n42"};
    for (int i = 0; i < 100; i++) {
        snprintf(many[i], sizeof many[i], "n%d", i);
        names_add(&names, many[i]);
    }
    cr_expect_str_eq(names_list(&names, text, sizeof text), "'n42', 'n2', 'n4', 'n12', 'n22', 'n24', 'n32', 'n40', 'n41', 'n43' and 90 more");
}

Test(near_names, a_text_never_exceeds_its_bytes)
{
    char longest[600], text[NAMES_TEXT_BYTES + 1];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (size_t bytes = 80; bytes <= NAMES_TEXT_BYTES; bytes += 40)
        for (size_t from = 0; from < sizeof longest; from += 7) {
            struct names names = {.wanted = longest};
            names_add(&names, longest + from);
            names_add(&names, "short");
            memset(text, '#', sizeof text);
            cr_assert_lt(strlen(names_text(&names, text, bytes)), bytes);
            cr_assert_eq(text[bytes], '#');
        }
}

Test(near_names, an_op_that_is_not_known_is_told_with_those_that_are)
{
    cr_expect_null(weir_op_find("reluu"));
    cr_expect(strstr(weir_error(), "there is no op 'reluu'; did you mean 'relu'? There are 'relu'"), "%s", weir_error());
    cr_expect_not_null(weir_op_find("relu"));
}

/* The textbook's table, by recursion over prefixes, without capitals. */
static int slow_distance(const char *a, int m, const char *b, int n)
{
    if (!m || !n)
        return m + n;
    int least = slow_distance(a, m - 1, b, n - 1) + (a[m - 1] != b[n - 1]);
    int other = slow_distance(a, m - 1, b, n) + 1;
    least = other < least ? other : least;
    other = slow_distance(a, m, b, n - 1) + 1;
    least = other < least ? other : least;
    if (m > 1 && n > 1 && a[m - 1] == b[n - 2] && a[m - 2] == b[n - 1]) {
        other = slow_distance(a, m - 2, b, n - 2) + 1;
        least = other < least ? other : least;
    }
    return least;
}

Test(near_names, the_distance_is_what_the_definition_says)
{
    unsigned seed = 7;
    for (int round = 0; round < 500; round++) {
        char a[7] = "", b[7] = "";
        for (int i = rand_r(&seed) % 7; i > 0; i--)
            a[i - 1] = (char)('a' + rand_r(&seed) % 3);
        for (int i = rand_r(&seed) % 7; i > 0; i--)
            b[i - 1] = (char)('a' + rand_r(&seed) % 3);
        cr_assert_eq(names_distance(a, b), slow_distance(a, (int)strlen(a), b, (int)strlen(b)), "%s %s", a, b);
    }
}
