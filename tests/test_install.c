/* tests/test_install.c: what `make install` puts on a system works there (tests/installed has the cases, one a test). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

TestSuite(install, .timeout = 600);

static void passes(const char *name)
{
    char command[128];
    snprintf(command, sizeof command, "tests/installed %s 2>&1", name);
    int status = system(command);
    cr_expect_eq(status, 0, "tests/installed %s: status %d", name, status);
}

Test(install, a_program_outside_is_built_with_pkg_config_in_c_and_in_cpp)
{
    passes("pkg_config");
}

Test(install, a_program_outside_is_built_with_cmake)
{
    passes("cmake");
}

Test(install, an_op_of_a_stranger_s_own_is_loaded_by_the_command)
{
    passes("own_op");
}

Test(install, both_libraries_show_what_the_headers_declare_alone)
{
    passes("symbols");
}

Test(install, manual_pages_and_completion_are_what_the_programs_say)
{
    passes("descriptions");
}

Test(install, python_loads_plans_and_runs_them)
{
    passes("python");
}

Test(install, the_plugin_that_was_installed_is_found_and_none_of_the_current_directory)
{
    passes("plugin");
}

Test(install, no_library_is_opened_from_the_current_directory)
{
    passes("libraries");
}

Test(install, python_finds_the_library_that_was_installed_and_none_of_the_current_directory)
{
    passes("python_library");
}

Test(install, make_install_says_the_line_after_which_the_library_is_found)
{
    passes("found");
}

Test(install, programs_find_the_data_and_the_maps_that_are_installed_with_them)
{
    passes("data");
}

Test(install, uninstall_leaves_nothing)
{
    passes("uninstall");
}
