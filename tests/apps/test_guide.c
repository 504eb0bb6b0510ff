/* tests/apps/test_guide.c: the guide says what is true: tests/guide runs the commands of each page, and compares what they
 * print; and the programs compile without a warning as a reader would compile them. */
#include <glob.h>

#include "tests/apps/shell.h"

TestSuite(guide, .init = folder_make, .fini = folder_remove, .timeout = 120);

static void does_as_it_says(const char *page)
{
    char command[256];
    snprintf(command, sizeof command, "BIN=%s tests/guide docs/guide/%s.md", APPS_BIN, page);
    must_run(command);
}

#define PAGE(test, page)                \
    Test(guide, test##_does_as_it_says) \
    {                                   \
        does_as_it_says(page);          \
    }
PAGE(first_model, "1-first-model")
PAGE(layouts, "2-layouts")
PAGE(pipelines, "3-pipelines")
PAGE(processes, "4-processes")
PAGE(saving, "5-save")
PAGE(limits, "6-limits")
PAGE(own_functions, "7-functions")
PAGE(embedding, "8-embedding")
PAGE(finding_out, "9-finding-out")
PAGE(training_data, "11-data")

Test(guide, its_list_has_every_page_and_each_leads_to_the_next)
{
    glob_t pages;
    cr_assert_eq(glob("docs/guide/[0-9]-*.md", 0, NULL, &pages), 0);
    for (size_t i = 0; i < pages.gl_pathc; i++) {
        char command[512];
        const char *name = strrchr(pages.gl_pathv[i], '/') + 1;
        snprintf(command, sizeof command, "grep -q '](%s)' docs/guide/README.md && grep -q '(%s)' %s", name, name,
                 i ? pages.gl_pathv[i - 1] : "docs/guide/README.md");
        must_run(command);
    }
    globfree(&pages);
}

Test(guide, its_programs_compile_without_a_warning)
{
    must_run("for f in apps/examples/*.c; do gcc -Wall -Wextra -Werror -fsyntax-only -Iinclude $f || exit 1; done");
}

/* A page that says something else than what is printed is found. */
Test(guide, its_runner_finds_a_wrong_line_a_failure_and_a_missing_line)
{
    const char *page = folder_path("page.md");
    static const char *const good = "```sh\nprintf 'a\\nb 1.00\\nc\\n'\n```\n```\na\n...\nc\n```\n",
                      *const bad[] = {"```sh\nprintf 'a\\nb 1.00\\nc\\n'\n```\n```\na\nc\n```\n", "```sh\nfalse; true\n```\n",
                                      "```sh\necho 1.00\n```\n```\n1.05\n```\n", "```sh\necho a\n```\n```\na\nb\n```\n"};
    folder_write(page, good, strlen(good));
    must_run("tests/guide $T/page.md");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        folder_write(page, bad[i], strlen(bad[i]));
        cr_expect_neq(run("tests/guide $T/page.md"), 0, "%s", bad[i]);
    }
}
