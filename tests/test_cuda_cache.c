/* test_cuda_cache.c - the cache of compiled kernels: every byte of an entry damaged in turn, entries cut short, links, files
 * and folders that others could have written, no room, no home, many processes at once. The compiler is a fake one that
 * counts: whatever the cache is like, an image comes back and it is the right one. */
#include "support/support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/cache.h"
#include "cuda/driver.h"
#include "cuda/program.h"
#include "cuda/state.h"

static long (*fake_compiled)(void);
static lac_device *target;
static int warnings;

static void count_warning(void *user, lac_log_level level, const char *message)
{
    (void)user, (void)message;
    warnings += level == LAC_LOG_LEVEL_WARNING;
}

static lac_cuda_request request_number(int number)
{
    lac_cuda_request request;
    lac_cuda_request_begin(&request, "plain.cu", "lac_plain");
    lac_cuda_request_define(&request, "LAC_NUMBER", number);
    return request;
}

/* The image of request `number` out of `folder`, which must come back whatever happens; true when it was compiled. */
static bool compiles(const char *folder, int number, bool must_store, lac_status *status)
{
    lac_cuda_request request = request_number(number);
    lac_cuda_image image = {0};
    bool found = false;
    long before = fake_compiled();
    lac_cuda_image_options options = {.folder = folder, .must_store = must_store};
    *status = lac_cuda_image_get(target, &request, &options, &found, &image);
    if (!*status && (image.bytes != 256 || strncmp(image.data, "FAKECUBIN plain.cu", 18) || image.registers != 40 ||
                     image.spill_bytes != 20 || image.stack_bytes != 32 || image.shared_bytes != 1024 || image.serialized ||
                     found != (fake_compiled() == before)))
        *status = LAC_STATUS_INTERNAL;
    lac_cuda_image_release(&image);
    return !found;
}

static void expect_compiled(const char *folder, int number)
{
    lac_status status;
    assert_true(compiles(folder, number, false, &status));
    assert_ok(status);
}

static void expect_found(const char *folder, int number)
{
    lac_status status;
    assert_false(compiles(folder, number, false, &status));
    assert_ok(status);
}

/* The one file in a folder that ends in .lac, and how many files there are. */
static int list(const char *folder, char path[1024])
{
    DIR *open = opendir(folder);
    int count = 0;
    for (struct dirent *item; open && (item = readdir(open));) {
        if (!strcmp(item->d_name, ".") || !strcmp(item->d_name, "..")) continue;
        if (path) snprintf(path, 1024, "%s/%s", folder, item->d_name);
        count++;
    }
    if (open) closedir(open);
    return count;
}

static const char *fresh_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s", test_path(name));
    return path;
}

static size_t read_file(const char *path, unsigned char bytes[8192])
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, 8192, file);
    assert_true(count < 8192 && fclose(file) == 0);
    return count;
}

/* ---- */

/* Which compiler's image is taken where there is no compiler: one that the driver knows, rather than whichever the folder names first. */
static void without_a_compiler_the_drivers_image_is_taken(void **state)
{
    (void)state;
    static const int orders[][3] = {{12080, 13000, 14000}, {14000, 13000, 12080}, {13000, 14000, 12080}};
    int driver = lac_cuda_driver_version();
    for (int i = 0; i < 3; i++) {
        char name[32], data[16];
        snprintf(name, sizeof name, "compilers%d", i);
        const char *folder = fresh_folder(name);
        for (int j = 0; j < 3; j++) {
            snprintf(data, sizeof data, "%d", orders[i][j]);
            assert_ok(lac_cache_store(folder, "a key", orders[i][j], &(lac_cuda_image){.data = data, .bytes = sizeof data}));
        }
        for (int damaged = 0; damaged < 3; damaged++) {
            static const int with[] = {13000, 12080, 14000}, without[] = {12080, 13000, 14000};
            lac_cuda_image image = {0};
            assert_ok(lac_cache_load(folder, "a key", 0, &image));
            assert_int_equal(atoi(image.data), (driver ? with : without)[damaged]);
            lac_cuda_image_release(&image);
            char path[1024];
            DIR *open = opendir(folder);
            for (struct dirent *item; (item = readdir(open));) {
                snprintf(data, sizeof data, "-%d.lac", (driver ? with : without)[damaged]);
                if (!strstr(item->d_name, data)) continue;
                snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
                test_write_file(path, "damaged", 7);
            }
            closedir(open);
        }
        lac_cuda_image none = {0};
        assert_int_equal(lac_cache_load(folder, "a key", 0, &none), LAC_STATUS_NOT_FOUND);
    }
}

static void an_entry_is_private_and_found_again(void **state)
{
    (void)state;
    const char *folder = fresh_folder("found/in/depth");
    char path[1024];
    struct stat status;
    expect_compiled(folder, 1);
    expect_found(folder, 1);
    expect_compiled(folder, 2);
    expect_found(folder, 1);
    assert_int_equal(list(folder, path), 2);
    assert_int_equal(stat(folder, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

/* A process that is killed leaves a temporary file, and in a container the next one has the same number. */
static void what_a_killed_process_left_is_in_nobodys_way(void **state)
{
    (void)state;
    const char *folder = fresh_folder("killed");
    char path[1024], left[1200];
    expect_compiled(folder, 1);
    assert_int_equal(list(folder, path), 1);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < 64; i++) {
        snprintf(left, sizeof left, "%s/.%s.%ld.%d", folder, strrchr(path, '/') + 1, (long)getpid(), i);
        test_write_file(left, "LACCUBIN", 8);
    }
    expect_compiled(folder, 1);
    expect_found(folder, 1);
}

/* What the compiler says of products is kept, and the word "registers" in it is not taken for their number. */
static void an_entry_tells_that_products_wait_for_each_other(void **state)
{
    (void)state;
    const char *folder = fresh_folder("serialized");
    lac_cuda_request request = request_number(1);
    lac_cuda_image_options options = {.folder = folder};
    assert_int_equal(setenv("FAKE_NVRTC_SERIALIZED", "1", 1), 0);
    for (int again = 0; again < 2; again++) {
        lac_cuda_image image = {0};
        bool found = false;
        assert_ok(lac_cuda_image_get(target, &request, &options, &found, &image));
        assert_int_equal(found, again);
        assert_int_equal(image.serialized, 1);
        assert_int_equal(image.registers, 40);
        assert_int_equal(image.spill_bytes, 20);
        lac_cuda_image_release(&image);
        assert_int_equal(unsetenv("FAKE_NVRTC_SERIALIZED"), 0);
    }
}

static void damage_is_seen_wherever_it_is(void **state)
{
    (void)state;
    const char *folder = fresh_folder("damage");
    char path[1024];
    unsigned char bytes[8192] = {0};
    expect_compiled(folder, 1);
    assert_int_equal(list(folder, path), 1);
    size_t count = read_file(path, bytes);
    size_t header = 72;
    assert_true(count > header + 256);
    for (size_t i = 0; i < count; i++) {
        bytes[i] ^= (unsigned char)(1 << i % 8);
        test_write_file(path, bytes, count);
        assert_int_equal(chmod(path, 0600), 0);
        bytes[i] ^= (unsigned char)(1 << i % 8);
        expect_compiled(folder, 1);
        expect_found(folder, 1);
    }
    for (size_t cut = 0; cut <= count; cut += cut < header ? 1 : 37) {
        test_write_file(path, bytes, cut < count ? cut : count - 1);
        assert_int_equal(chmod(path, 0600), 0);
        expect_compiled(folder, 1);
    }
    test_write_file(path, bytes, count + 1); /* one byte more than it says */
    assert_int_equal(chmod(path, 0600), 0);
    expect_compiled(folder, 1);
    expect_found(folder, 1);
    assert_int_equal(list(folder, NULL), 1);
}

static void an_entry_of_another_key_is_not_taken(void **state)
{
    (void)state;
    const char *folder = fresh_folder("swapped");
    char first[1024], second[1024];
    unsigned char bytes[8192] = {0};
    expect_compiled(folder, 1);
    list(folder, first);
    size_t count = read_file(first, bytes);
    assert_int_equal(unlink(first), 0);
    expect_compiled(folder, 2);
    list(folder, second);
    test_write_file(second, bytes, count); /* sound in itself, but of request 1 */
    assert_int_equal(chmod(second, 0600), 0);
    expect_compiled(folder, 2);
    expect_found(folder, 2);
}

static void what_others_may_write_is_not_read(void **state)
{
    (void)state;
    const char *folder = fresh_folder("foreign");
    char path[1024];
    lac_status status;
    expect_compiled(folder, 1);
    list(folder, path);
    assert_int_equal(chmod(path, 0620), 0);
    expect_compiled(folder, 1);
    expect_found(folder, 1);
    assert_int_equal(chmod(path, 0602), 0);
    expect_compiled(folder, 1);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
        expect_compiled(folder, 1);
    }
    expect_found(folder, 1);
    /* The folder itself: neither read nor written, which is a warning, or an error where it was asked for. */
    assert_int_equal(chmod(folder, 0770), 0);
    warnings = 0;
    expect_compiled(folder, 1);
    assert_int_equal(warnings, 1);
    compiles(folder, 1, true, &status);
    assert_fails(status, LAC_STATUS_IO, "chmod 700");
    assert_int_equal(chmod(folder, 0700), 0);
    expect_found(folder, 1);
    if (geteuid() == 0) {
        assert_int_equal(chown(folder, 12345, 12345), 0);
        expect_compiled(folder, 1);
    }
}

static void links_are_not_followed(void **state)
{
    (void)state;
    char folder[512], path[1024], elsewhere[512], link[512];
    snprintf(folder, sizeof folder, "%s", test_path("links"));
    snprintf(elsewhere, sizeof elsewhere, "%s", test_path("elsewhere"));
    snprintf(link, sizeof link, "%s", test_path("link"));
    expect_compiled(folder, 1);
    list(folder, path);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    expect_compiled(folder, 1); /* the link is not read, and a file takes its place */
    struct stat status;
    assert_int_equal(lstat(path, &status), 0);
    assert_true(S_ISREG(status.st_mode));
    expect_found(folder, 1);
    assert_int_equal(symlink(folder, link), 0);
    expect_compiled(link, 1);
    /* A pipe in its place must not block. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_compiled(folder, 1);
    expect_found(folder, 1);
}

/* ---- in children: other users, limits, environments */

#define need(condition)                                                                                                        \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", __FILE__, __LINE__, #condition, lac_last_error());    \
            _exit(1);                                                                                                          \
        }                                                                                                                      \
    } while (0)

static void need_compiled(const char *folder, int number)
{
    lac_status status;
    need(compiles(folder, number, false, &status) && status == LAC_STATUS_OK);
}

static void need_found(const char *folder, int number)
{
    lac_status status;
    need(!compiles(folder, number, false, &status) && status == LAC_STATUS_OK);
}

static void in_child(void (*body)(const char *folder), const char *folder)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body(folder);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void body_no_room(const char *folder)
{
    struct rlimit limit = {200, 200};
    signal(SIGXFSZ, SIG_IGN);
    need(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    warnings = 0;
    need_compiled(folder, 5);
    need(warnings == 1);
    lac_status status;
    compiles(folder, 5, true, &status);
    need(status == LAC_STATUS_IO && strstr(lac_last_error(), strerror(EFBIG)));
    need(list(folder, NULL) == 1); /* nothing half-written stays beside what was there */
    need_found(folder, 4);
}

static void no_room(void **state)
{
    (void)state;
    const char *folder = fresh_folder("full");
    expect_compiled(folder, 4);
    in_child(body_no_room, folder);
}

/* An ordinary user with a folder of root's, as an administrator would deploy it: read, never written. */
static void body_read_only(const char *folder)
{
    if (geteuid() == 0) need(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    need_found(folder, 1);
    warnings = 0;
    need_compiled(folder, 2);
    need(warnings == 1 && list(folder, NULL) == 1);
}

static void a_folder_that_cannot_be_written(void **state)
{
    (void)state;
    char folder[512], path[1024];
    /* Where any user may pass through to it. */
    snprintf(folder, sizeof folder, "/tmp/lacuna-test-%ld", (long)getpid());
    expect_compiled(folder, 1);
    list(folder, path);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(chmod(folder, 0555), 0);
    in_child(body_read_only, folder);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void body_homeless(const char *folder)
{
    (void)folder;
    unsetenv("LAC_CACHE_DIR"), unsetenv("XDG_CACHE_HOME"), unsetenv("HOME");
    warnings = 0;
    need_compiled(NULL, 1);
    need_compiled(NULL, 1);
    need(warnings == 2);
    lac_component_info info = {.size = sizeof info};
    need(!lac_component_probe(2, &info) && !info.available && strstr(info.note, "HOME"));
    setenv("HOME", "/proc/no/such/place", 1);
    need_compiled(NULL, 1);
    char longest[5000] = "/";
    memset(longest + 1, 'a', sizeof longest - 2);
    longest[sizeof longest - 1] = '\0';
    setenv("LAC_CACHE_DIR", longest, 1);
    need_compiled(NULL, 1);
    info = (lac_component_info){.size = sizeof info};
    need(!lac_component_probe(2, &info) && !info.available && strstr(info.note, "too long"));
}

static void body_homes(const char *folder)
{
    char path[1024];
    unsetenv("LAC_CACHE_DIR"), unsetenv("XDG_CACHE_HOME");
    setenv("HOME", folder, 1);
    need_compiled(NULL, 1);
    need_found(NULL, 1);
    snprintf(path, sizeof path, "%s/.cache/lacuna", folder);
    need(list(path, NULL) == 1);
    snprintf(path, sizeof path, "%s/xdg", folder);
    setenv("XDG_CACHE_HOME", path, 1);
    need_compiled(NULL, 1);
    snprintf(path, sizeof path, "%s/own", folder);
    setenv("LAC_CACHE_DIR", path, 1);
    need_compiled(NULL, 1);
    need_found(path, 1);
    lac_component_info info = {.size = sizeof info};
    need(!lac_component_probe(2, &info) && info.available && !strcmp(info.path, path));
}

static void homes_and_none(void **state)
{
    (void)state;
    in_child(body_homeless, "");
    in_child(body_homes, fresh_folder("home"));
}

/* Options of the environment are part of the key: what a sanitizer or a profiler had compiled is nobody else's. */
static void options_of_the_environment(void **state)
{
    (void)state;
    const char *folder = fresh_folder("options");
    lac_status status;
    expect_compiled(folder, 70);
    setenv("LAC_CUDA_OPTIONS", "  -lineinfo -DLAC_EACH_ARRIVES=1 ", 1);
    expect_compiled(folder, 70);
    expect_found(folder, 70);
    setenv("LAC_CUDA_OPTIONS", "-lineinfo", 1);
    expect_compiled(folder, 70);
    char longest[128];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    setenv("LAC_CUDA_OPTIONS", longest, 1);
    compiles(folder, 70, false, &status);
    assert_int_equal(status, LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "LAC_CUDA_OPTIONS has 'xxx"));
    setenv("LAC_CUDA_OPTIONS",
           "-a -b -c -d -e -f -g -h -i -j -k -l -m -n -o -p -q -r -s -t -u -v -w -x -y -z -a -b -c -d -e -f -g -h "
           "-i -j -k -l -m -n -o -p -q -r -s -t -u -v -w -x -y -z -a -b -c -d -e -f -g -h -i -j -k -l -m -n -o",
           1);
    compiles(folder, 70, false, &status);
    assert_int_equal(status, LAC_STATUS_INVALID_ARGUMENT);
    unsetenv("LAC_CUDA_OPTIONS");
    expect_found(folder, 70);
}

/* Eight processes write, read and remove the same five entries. */
static void many_processes_at_once(void **state)
{
    (void)state;
    enum { PROCESSES = 8, ROUNDS = 60, ENTRIES = 5 };
    const char *folder = fresh_folder("crowd");
    pid_t children[PROCESSES];
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i]) continue;
        for (int round = 0; round < ROUNDS; round++) {
            lac_status status;
            compiles(folder, (round * 3 + i) % ENTRIES, false, &status);
            need(status == LAC_STATUS_OK);
            char path[1024];
            if (round % 7 == i % 7 && list(folder, path) > 0) unlink(path);
        }
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    lac_status status;
    for (int i = 0; i < ENTRIES; i++) compiles(folder, i, true, &status), assert_ok(status);
    assert_int_equal(list(folder, NULL), ENTRIES); /* no temporary file stays */
}

static void the_hash_is_fnv(void **state)
{
    (void)state;
    lac_hash hash = lac_hash_begin();
    lac_hash_add(&hash, "a", 1);
    assert_true(hash.high == 0xd228cb696f1a8cafu && hash.low == 0x78912b704e4a8964u);
    lac_hash_add(&hash, "", 0);
    assert_true(hash.high == 0xd228cb696f1a8cafu && hash.low == 0x78912b704e4a8964u);
}

static int open_target(void **state)
{
    (void)state;
    void *nvrtc = dlopen(FAKE_NVRTC, RTLD_NOW);
    void *found = nvrtc ? dlsym(nvrtc, "fake_compiled") : NULL;
    memcpy(&fake_compiled, &found, sizeof found);
    lac_set_log(count_warning, NULL, LAC_LOG_LEVEL_WARNING);
    umask(0022);
    return !found || lac_cuda_target_open("sm_90a", &target);
}

static int close_target(void **state)
{
    (void)state;
    lac_device_close(target);
    return 0;
}

int main(void)
{
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
    test_folder();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_fnv),
        cmocka_unit_test(an_entry_is_private_and_found_again),
        cmocka_unit_test(without_a_compiler_the_drivers_image_is_taken),
        cmocka_unit_test(what_a_killed_process_left_is_in_nobodys_way),
        cmocka_unit_test(an_entry_tells_that_products_wait_for_each_other),
        cmocka_unit_test(damage_is_seen_wherever_it_is),
        cmocka_unit_test(an_entry_of_another_key_is_not_taken),
        cmocka_unit_test(what_others_may_write_is_not_read),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(no_room),
        cmocka_unit_test(a_folder_that_cannot_be_written),
        cmocka_unit_test(homes_and_none),
        cmocka_unit_test(options_of_the_environment),
        cmocka_unit_test(many_processes_at_once),
    };
    return cmocka_run_group_tests(tests, open_target, close_target);
}
