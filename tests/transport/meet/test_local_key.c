/* tests/transport/meet/test_local_key.c: the key that ranks of one host share when they are given none. Each case has
 * folders of its own. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include "transport/meet/keys.h"
#include "transport/meet/local_key.h"

TestSuite(local_key, .timeout = 60);

enum { PATH_BYTES = 256, MAKERS = 24 };

static char top[PATH_BYTES];

/* A runtime folder and a temporary one, both empty. */
static void folders_make(void)
{
    char path[PATH_BYTES + 16];
    snprintf(top, sizeof top, "/tmp/weir-test-key-XXXXXX");
    cr_assert(mkdtemp(top));
    snprintf(path, sizeof path, "%s/run", top);
    cr_assert_eq(mkdir(path, 0700), 0);
    setenv("XDG_RUNTIME_DIR", path, 1);
    snprintf(path, sizeof path, "%s/tmp", top);
    cr_assert_eq(mkdir(path, 0777), 0);
    setenv("TMPDIR", path, 1);
}

static void folders_remove(void)
{
    char command[PATH_BYTES + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", top);
    cr_assert_eq(system(command), 0);
}

static const char *in(const char *name)
{
    static char path[4 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", top, name);
    return path;
}

static const char *private_folder(void)
{
    static char name[64];
    snprintf(name, sizeof name, "tmp/weir-%u", (unsigned)geteuid());
    return name;
}

static unsigned mode_of(const char *name)
{
    struct stat info;
    return lstat(in(name), &info) ? 0 : (unsigned)info.st_mode & 07777;
}

static int entries_of(const char *name)
{
    int count = 0;
    DIR *dir = opendir(in(name));
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    if (dir)
        closedir(dir);
    return count;
}

static void file_write(const char *name, const char *text, mode_t mode)
{
    FILE *file = fopen(in(name), "w");
    cr_assert(file && fputs(text, file) >= 0 && !fclose(file));
    cr_assert_eq(chmod(in(name), mode), 0);
}

static void expect_key(char secret[WEIR_KEY_BYTES])
{
    char public_key[WEIR_KEY_BYTES];
    cr_assert_eq(local_key(secret), WEIR_OK, "%s", weir_error());
    cr_assert_eq(strlen(secret), 40u);
    cr_assert_eq(zmq_curve_public(public_key, secret), 0);
}

static void expect_refused(const char *text)
{
    char secret[WEIR_KEY_BYTES];
    cr_assert_eq(local_key(secret), WEIR_E_IO);
    cr_expect(strstr(weir_error(), text), "'%s' does not say '%s'", weir_error(), text);
    cr_expect(strstr(weir_error(), "WEIR_KEY_FILE") && strstr(weir_error(), "WEIR_INSECURE=1"), "%s", weir_error());
}

Test(local_key, is_made_once_in_the_runtime_folder)
{
    char first[WEIR_KEY_BYTES], second[WEIR_KEY_BYTES];
    folders_make();
    umask(0);
    expect_key(first);
    expect_key(second);
    cr_expect_str_eq(first, second);
    cr_expect_eq(mode_of("run/weir.key"), 0600u);
    cr_expect_eq(entries_of("run"), 1);
    cr_expect_eq(entries_of("tmp"), 0);
    folders_remove();
}

Test(local_key, is_in_a_private_folder_where_there_is_no_runtime_folder)
{
    char first[WEIR_KEY_BYTES], second[WEIR_KEY_BYTES], path[128];
    folders_make();
    umask(0);
    unsetenv("XDG_RUNTIME_DIR");
    expect_key(first);
    cr_expect_eq(mode_of(private_folder()), 0700u);
    snprintf(path, sizeof path, "%s/weir.key", private_folder());
    cr_expect_eq(mode_of(path), 0600u);
    setenv("XDG_RUNTIME_DIR", in("nowhere"), 1);
    expect_key(second);
    cr_expect_str_eq(first, second);
    cr_assert_eq(chmod(in("run"), 0755), 0);
    setenv("XDG_RUNTIME_DIR", in("run"), 1);
    expect_key(second);
    cr_expect_str_eq(first, second);
    cr_expect_eq(entries_of("run"), 0);
    folders_remove();
}

/* All start when the pipe is closed. */
Test(local_key, is_one_for_all_who_make_it_at_the_same_time)
{
    char(*keys)[WEIR_KEY_BYTES] =
        mmap(NULL, MAKERS * sizeof *keys, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int start[2];
    folders_make();
    unsetenv("XDG_RUNTIME_DIR");
    cr_assert(keys != MAP_FAILED && !pipe(start));
    for (int m = 0; m < MAKERS; m++) {
        char byte;
        pid_t pid = fork();
        cr_assert(pid >= 0);
        if (pid)
            continue;
        close(start[1]);
        _exit(read(start[0], &byte, 1) || local_key(keys[m]));
    }
    close(start[1]);
    for (int m = 0, status; m < MAKERS; m++)
        cr_assert(wait(&status) > 0 && !status);
    for (int m = 0; m < MAKERS; m++)
        cr_expect_arr_eq(keys[m], keys[0], WEIR_KEY_BYTES);
    cr_expect_eq(strlen(keys[0]), 40u);
    cr_expect_eq(entries_of(private_folder()), 1);
    munmap(keys, MAKERS * sizeof *keys);
    folders_remove();
}

Test(local_key, is_not_taken_from_what_others_may_have_put_there)
{
    folders_make();
    file_write("other", "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID\n", 0600);
    cr_assert_eq(symlink("../other", in("run/weir.key")), 0);
    expect_refused("weir.key in it is a symbolic link");
    unlink(in("run/weir.key"));
    file_write("run/weir.key", "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID\n", 0644);
    expect_refused("weir.key in it is open to others");
    file_write("run/weir.key", "Yne@$w-vo<fVvi]a", 0600);
    expect_refused("weir.key in it holds no key: remove it");
    file_write("run/weir.key", "", 0600);
    expect_refused("weir.key in it holds no key: remove it");
    unlink(in("run/weir.key"));
    cr_assert_eq(mkdir(in("run/weir.key"), 0700), 0);
    expect_refused("weir.key in it is open to others or not a file of the user's");
    folders_remove();
}

Test(local_key, is_not_put_into_a_folder_of_others)
{
    folders_make();
    unsetenv("XDG_RUNTIME_DIR");
    cr_assert_eq(mkdir(in(private_folder()), 0755), 0);
    expect_refused("it is open to others");
    cr_assert_eq(rmdir(in(private_folder())), 0);
    cr_assert_eq(symlink("../run", in(private_folder())), 0);
    expect_refused("Not a directory");
    cr_expect_eq(entries_of("run"), 0);
    folders_remove();
}

/* Only root can give a folder away. */
Test(local_key, is_not_put_into_a_folder_of_another_user)
{
    if (geteuid() != 0)
        cr_skip_test("needs root");
    folders_make();
    unsetenv("XDG_RUNTIME_DIR");
    cr_assert_eq(mkdir(in(private_folder()), 0700), 0);
    cr_assert_eq(chown(in(private_folder()), 65534, 65534), 0);
    expect_refused("it belongs to another user");
    cr_expect_eq(entries_of(private_folder()), 0);
    folders_remove();
}

Test(local_key, says_what_to_do_where_no_file_can_be)
{
    folders_make();
    unsetenv("XDG_RUNTIME_DIR");
    setenv("TMPDIR", in("nowhere"), 1);
    expect_refused("No such file or directory");
    setenv("TMPDIR", "/proc", 1);
    expect_refused("/proc/weir-");
    folders_remove();
}

/* ---- in a session ---- */

Test(local_key, is_that_of_loopback_alone_and_of_nobody_who_is_insecure)
{
    struct cluster_env env = {.size = 2, .address = "127.0.0.1"};
    struct keys keys, again;
    char secret[WEIR_KEY_BYTES];
    folders_make();
    expect_key(secret);
    cr_assert_eq(keys_open(&keys, &env), WEIR_OK, "%s", weir_error());
    cr_assert_eq(keys_open(&again, &env), WEIR_OK, "%s", weir_error());
    cr_expect(keys.curve);
    cr_expect_str_eq(keys.secret, secret);
    cr_expect_str_eq(keys.public_key, again.public_key);
    cr_expect(strcmp(keys.own_public_key, again.own_public_key) != 0);
    unlink(in("run/weir.key"));
    env.insecure = true;
    cr_assert_eq(keys_open(&keys, &env), WEIR_OK, "%s", weir_error());
    cr_expect_not(keys.curve);
    strcpy(env.secret, secret);
    cr_assert_eq(keys_open(&keys, &env), WEIR_OK, "%s", weir_error());
    cr_expect(keys.curve);
    env = (struct cluster_env){.size = 2, .address = "10.0.0.1"};
    cr_expect_eq(keys_open(&keys, &env), WEIR_E_ARGUMENT);
    cr_expect_eq(entries_of("run"), 0);
    folders_remove();
}
