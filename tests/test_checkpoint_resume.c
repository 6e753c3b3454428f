/* test_checkpoint_resume.c - runs over a checkpoint that were cut off: wherever that was, the next run goes on and makes the very bytes of a run
 * that was not; what was damaged in between is done again; other options, weights or samples are refused. tests/cli/test_resume.py kills the
 * program itself. */
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/digest.h"
#include "support/support.h"

enum { TENSORS = 6, N = 24, K = 32, SAMPLES = 40 };

static const char *const names[TENSORS] = {"a.weight", "a.bias", "b.weight", "c.weight", "d.weight", "e.weight"};

static const char in[] = "in.safetensors", out[] = "out.safetensors", whole[] = "whole.safetensors", inputs[] = "x.safetensors";

static void fill(float *data, int64_t count, int64_t seed)
{
    test_random random = test_random_make("resume", seed);
    for (int64_t i = 0; i < count; i++) data[i] = (float)test_random_gaussian(&random);
}

/* The tensors, or samples of their inputs; tensor `changed` has other values. */
static void write_tensors(const char *path, bool samples, int changed, const char *extra)
{
    static float data[SAMPLES * K];
    lac_writer *writer;
    assert_ok(lac_writer_open(test_path(path), &writer));
    if (extra) assert_ok(lac_writer_set_metadata(writer, "extra", extra));
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < TENSORS; i++) {
            bool bias = i == 1;
            int64_t rows = bias ? 1 : samples ? SAMPLES : N;
            char name[32];
            if (samples)
                snprintf(name, sizeof name, "%c.input", names[i][0]);
            else
                snprintf(name, sizeof name, "%s", names[i]);
            if (bias && samples) continue;
            lac_tensor_info info = {
                .size = sizeof info, .name = name, .dtype = LAC_DTYPE_F32, .rank = bias ? 1 : 2, .shape = {bias ? K : rows, K}};
            fill(data, rows * K, 10 * i + (samples ? 1 : 0) + (i == changed ? 1000 : 0));
            if (pass == 0)
                assert_ok(lac_writer_declare_tensor(writer, &info));
            else
                assert_ok(lac_writer_write_tensor(writer, name, data, (uint64_t)(rows * K) * sizeof *data));
        }
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

typedef struct watch {
    int count, resumed, stop_after; /* stop_after counts tensors that this run did itself; 0: never */
    double energy[TENSORS];
} watch;

static int see(void *user, const lac_layer_report *report)
{
    watch *w = user;
    w->resumed += report->resumed;
    if (report->resumed) assert_int_equal(w->resumed, w->count + 1); /* those of the earlier run come first */
    w->energy[w->count++] = report->energy_kept;
    return w->stop_after > 0 && w->count - w->resumed == w->stop_after;
}

static lac_status run_to(const char *to, watch *w, const char *pattern, lac_method method, lac_resume resume)
{
    lac_pattern p;
    assert_ok(lac_pattern_parse(pattern, &p));
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &p, .on_layer = see, .user = w, .resume = resume};
    lac_prune_options prune = {.size = sizeof prune, .method = method, .threads = 1};
    options.prune = &prune;
    if (method >= LAC_METHOD_WANDA) options.calibration = test_path(inputs);
    return lac_checkpoint_prune(test_path(in), test_path(to), &options);
}

static lac_status run(watch *w, const char *pattern, lac_method method, lac_resume resume)
{
    return run_to(out, w, pattern, method, resume);
}

typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

static bytes read_file(const char *name)
{
    bytes b = {0};
    FILE *file = fopen(test_path(name), "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    b.size = (size_t)ftell(file);
    rewind(file);
    b.data = malloc(b.size + 1);
    assert_int_equal(fread(b.data, 1, b.size, file), b.size);
    fclose(file);
    return b;
}

static bool exists(const char *name) { return access(test_path(name), F_OK) == 0; }

static void expect_whole(void)
{
    bytes a = read_file(out), b = read_file(whole);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    free(a.data);
    free(b.data);
    assert_false(exists("out.safetensors.partial"));
    assert_false(exists("out.safetensors.journal"));
    assert_int_equal(unlink(test_path(out)), 0);
}

/* A fresh folder with the input, the samples and what a run that is not cut off makes of them. */
static void start(const char *pattern, lac_method method)
{
    watch w = {0};
    test_folder_clear();
    write_tensors(in, false, -1, NULL);
    write_tensors(inputs, true, -1, NULL);
    assert_ok(run_to(whole, &w, pattern, method, LAC_RESUME_NO));
    assert_int_equal(test_folder_files(), 3);
}

static void cut_off_after(int tensors, const char *pattern, lac_method method)
{
    watch w = {.stop_after = tensors};
    assert_status(run(&w, pattern, method, LAC_RESUME_YES), LAC_STATUS_CANCELLED);
    assert_false(exists(out));
    assert_true(exists("out.safetensors.partial") && exists("out.safetensors.journal"));
}

static void goes_on_from_everywhere(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        lac_method method;
    } cases[] = {{"2:4", LAC_METHOD_MAGNITUDE},
                 {"shfl4:25%", LAC_METHOD_MAGNITUDE},
                 {"2:4", LAC_METHOD_WANDA},
                 {"2:4", LAC_METHOD_OBS},
                 {"vw8:25%", LAC_METHOD_OBS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        watch uncut = {0};
        start(cases[i].pattern, cases[i].method);
        assert_ok(run_to("again.safetensors", &uncut, cases[i].pattern, cases[i].method, LAC_RESUME_YES));
        for (int after = 1; after <= TENSORS; after++) {
            watch w = {0};
            cut_off_after(after, cases[i].pattern, cases[i].method);
            assert_ok(run(&w, cases[i].pattern, cases[i].method, LAC_RESUME_YES));
            assert_int_equal(w.count, TENSORS);
            assert_int_equal(w.resumed, after);
            assert_memory_equal(w.energy, uncut.energy, sizeof w.energy);
            expect_whole();
        }
        for (int tensors = 1; tensors <= TENSORS; tensors++) cut_off_after(1, cases[i].pattern, cases[i].method);
        watch w = {0};
        assert_ok(run(&w, cases[i].pattern, cases[i].method, LAC_RESUME_YES));
        assert_int_equal(w.resumed, TENSORS);
        expect_whole();
    }
}

/* What a run in one locale has noted, a run in another one reads. */
static void goes_on_in_another_locale(void **state)
{
    (void)state;
    watch uncut = {0}, on = {0}, back = {0};
    start("2:4", LAC_METHOD_MAGNITUDE);
    assert_ok(run_to("again.safetensors", &uncut, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
    cut_off_after(2, "2:4", LAC_METHOD_MAGNITUDE);
    if (!test_comma_locale()) skip();
    assert_ok(run(&on, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
    assert_int_equal(unlink(test_path(out)), 0);
    cut_off_after(2, "2:4", LAC_METHOD_MAGNITUDE);
    setlocale(LC_NUMERIC, "C");
    assert_ok(run(&back, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
    assert_int_equal(on.resumed, 2);
    assert_int_equal(back.resumed, 2);
    assert_memory_equal(on.energy, uncut.energy, sizeof on.energy);
    assert_memory_equal(back.energy, uncut.energy, sizeof back.energy);
}

static void restarts_when_told(void **state)
{
    (void)state;
    watch w = {0};
    start("2:4", LAC_METHOD_MAGNITUDE);
    cut_off_after(4, "1:4", LAC_METHOD_MAGNITUDE);
    assert_ok(run(&w, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_RESTART));
    assert_int_equal(w.resumed, 0);
    expect_whole();
}

/* Through a link to a private file: the link stays, and what is left meanwhile stands beside the file and is as private. */
static void goes_on_behind_a_link(void **state)
{
    (void)state;
    static const char link_name[] = "link.safetensors", partial[] = "sub/real.safetensors.partial";
    struct stat found;
    watch cut = {.stop_after = 2}, w = {0};
    start("2:4", LAC_METHOD_MAGNITUDE);
    assert_int_equal(mkdir(test_path("sub"), 0700), 0);
    test_write_file(test_path("sub/real.safetensors"), "old", 3);
    assert_int_equal(chmod(test_path("sub/real.safetensors"), 0640), 0);
    assert_int_equal(symlink("sub/real.safetensors", test_path(link_name)), 0);
    assert_status(run_to(link_name, &cut, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES), LAC_STATUS_CANCELLED);
    assert_int_equal(stat(test_path(partial), &found), 0);
    assert_int_equal(found.st_mode & 0777, 0600);
    assert_ok(run_to(link_name, &w, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
    assert_int_equal(w.resumed, 2);
    assert_int_equal(lstat(test_path(link_name), &found), 0);
    assert_true(S_ISLNK(found.st_mode));
    assert_int_equal(stat(test_path(link_name), &found), 0);
    assert_int_equal(found.st_mode & 0777, 0640);
    assert_false(exists(partial));
    assert_false(exists("sub/real.safetensors.journal"));
    assert_int_equal(rename(test_path("sub/real.safetensors"), test_path(out)), 0);
    expect_whole();
}

static void refuses_what_changed(void **state)
{
    (void)state;
    start("2:4", LAC_METHOD_WANDA);
    cut_off_after(4, "2:4", LAC_METHOD_WANDA);
    bytes partial = read_file("out.safetensors.partial"), journal = read_file("out.safetensors.journal");
    watch w = {0};
    assert_fails(run(&w, "1:4", LAC_METHOD_WANDA, LAC_RESUME_YES), LAC_STATUS_INVALID_ARGUMENT,
                 "pattern \"2:4\", now it is \"1:4\"");
    assert_fails(run(&w, "2:4", LAC_METHOD_OBS, LAC_RESUME_YES), LAC_STATUS_INVALID_ARGUMENT, "method 2, now it is 3");
    assert_int_equal(w.count, 0);
    write_tensors(in, false, 3, NULL); /* among the finished */
    assert_fails(run(&w, "2:4", LAC_METHOD_WANDA, LAC_RESUME_YES), LAC_STATUS_INVALID_ARGUMENT, "c.weight: the weights");
    write_tensors(in, false, -1, "metadata");
    assert_fails(run(&w, "2:4", LAC_METHOD_WANDA, LAC_RESUME_YES), LAC_STATUS_INVALID_ARGUMENT, "other tensors");
    write_tensors(in, false, -1, NULL);
    write_tensors(inputs, true, 2, NULL);
    assert_fails(run(&w, "2:4", LAC_METHOD_WANDA, LAC_RESUME_YES), LAC_STATUS_INVALID_ARGUMENT, "b.weight: the samples");
    write_tensors(inputs, true, -1, NULL);
    bytes partial_after = read_file("out.safetensors.partial"), journal_after = read_file("out.safetensors.journal");
    assert_int_equal(partial.size, partial_after.size);
    assert_memory_equal(partial.data, partial_after.data, partial.size);
    assert_int_equal(journal.size, journal_after.size);
    assert_memory_equal(journal.data, journal_after.data, journal.size);
    w = (watch){0};
    assert_ok(run(&w, "2:4", LAC_METHOD_WANDA, LAC_RESUME_YES));
    assert_int_equal(w.resumed, 4);
    expect_whole();
    free(partial.data), free(journal.data), free(partial_after.data), free(journal_after.data);
}

/* A journal cut at any byte, as a crash of the machine may leave it, and one with a byte changed. */
static void believes_no_torn_journal(void **state)
{
    (void)state;
    start("2:4", LAC_METHOD_MAGNITUDE);
    cut_off_after(5, "2:4", LAC_METHOD_MAGNITUDE);
    bytes partial = read_file("out.safetensors.partial"), journal = read_file("out.safetensors.journal");
    int before = 0;
    for (size_t length = 0; length <= journal.size; length += (size_t)test_scale() * 7) {
        watch w = {0};
        test_write_file(test_path("out.safetensors.partial"), partial.data, partial.size);
        test_write_file(test_path("out.safetensors.journal"), journal.data, length);
        assert_ok(run(&w, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
        assert_true(w.resumed >= before);
        before = w.resumed;
        expect_whole();
    }
    for (size_t at = 0; at < journal.size; at += (size_t)test_scale() * 13) {
        watch w = {0};
        journal.data[at] ^= 1;
        test_write_file(test_path("out.safetensors.partial"), partial.data, partial.size);
        test_write_file(test_path("out.safetensors.journal"), journal.data, journal.size);
        journal.data[at] ^= 1;
        assert_ok(run(&w, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
        assert_true(w.resumed < 5);
        expect_whole();
    }
    free(partial.data), free(journal.data);
}

/* The partial file cut at any byte, changed, or longer than it was. */
static void does_damaged_tensors_again(void **state)
{
    (void)state;
    start("vw4:2:8", LAC_METHOD_MAGNITUDE);
    cut_off_after(5, "vw4:2:8", LAC_METHOD_MAGNITUDE);
    bytes partial = read_file("out.safetensors.partial"), journal = read_file("out.safetensors.journal");
    for (size_t length = 0; length < partial.size; length += (size_t)test_scale() * 97) {
        watch w = {0};
        test_write_file(test_path("out.safetensors.partial"), partial.data, length);
        test_write_file(test_path("out.safetensors.journal"), journal.data, journal.size);
        assert_ok(run(&w, "vw4:2:8", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
        assert_true(w.resumed < 5);
        expect_whole();
    }
    watch gone = {0}; /* without the partial file the journal means nothing, and refuses nothing */
    test_write_file(test_path("out.safetensors.journal"), journal.data, journal.size);
    unlink(test_path("out.safetensors.partial"));
    assert_ok(run(&gone, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
    assert_int_equal(gone.resumed, 0);
    assert_false(exists("out.safetensors.journal"));
    for (size_t at = 0; at < partial.size; at += (size_t)test_scale() * 89) {
        watch w = {0};
        partial.data[at] ^= 0x40;
        test_write_file(test_path("out.safetensors.partial"), partial.data, partial.size);
        test_write_file(test_path("out.safetensors.journal"), journal.data, journal.size);
        partial.data[at] ^= 0x40;
        assert_ok(run(&w, "vw4:2:8", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES)); /* the header is written anew in any case */
        expect_whole();
    }
    unsigned char *longer = calloc(1, 3 * partial.size);
    memcpy(longer, partial.data, partial.size);
    test_write_file(test_path("out.safetensors.partial"), longer, 3 * partial.size);
    test_write_file(test_path("out.safetensors.journal"), journal.data, journal.size);
    watch w = {0};
    assert_ok(run(&w, "vw4:2:8", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
    assert_int_equal(w.resumed, 5);
    expect_whole();
    free(longer), free(partial.data), free(journal.data);
}

static void two_runs_do_not_meet(void **state)
{
    (void)state;
    watch w = {0};
    start("2:4", LAC_METHOD_MAGNITUDE);
    cut_off_after(2, "2:4", LAC_METHOD_MAGNITUDE);
    FILE *other = fopen(test_path("out.safetensors.journal"), "rb");
    assert_non_null(other);
    assert_int_equal(flock(fileno(other), LOCK_EX | LOCK_NB), 0);
    assert_fails(run(&w, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES), LAC_STATUS_IO, "another run");
    fclose(other);
    assert_ok(run(&w, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
    assert_int_equal(w.resumed, 2);
    expect_whole();
}

/* A failure that came before anything was finished leaves nothing; one that came later leaves what was. */
static void failures_keep_what_is_finished(void **state)
{
    (void)state;
    lac_pattern p;
    start("2:4", LAC_METHOD_OBS);
    assert_ok(lac_pattern_parse("2:4", &p));
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &p, .resume = LAC_RESUME_YES};
    lac_prune_options prune = {.size = sizeof prune, .method = LAC_METHOD_OBS};
    options.prune = &prune, options.calibration = test_path("none");
    assert_status(lac_checkpoint_prune(test_path(in), test_path(out), &options), LAC_STATUS_IO);
    assert_int_equal(test_folder_files(), 3);
    options.resume = (lac_resume)3;
    assert_fails(lac_checkpoint_prune(test_path(in), test_path(out), &options), LAC_STATUS_INVALID_ARGUMENT, "resume is 3");
    cut_off_after(3, "2:4", LAC_METHOD_OBS);
    unlink(test_path(inputs));
    watch w = {0};
    assert_status(run(&w, "2:4", LAC_METHOD_OBS, LAC_RESUME_YES), LAC_STATUS_IO);
    write_tensors(inputs, true, -1, NULL);
    assert_ok(run(&w, "2:4", LAC_METHOD_OBS, LAC_RESUME_YES));
    assert_int_equal(w.resumed, 3);
    expect_whole();
}

/* No file may grow beyond `limit` bytes meanwhile, as on a full disk. */
static lac_status run_within(rlim_t limit, watch *w, const char *pattern, lac_method method, lac_resume resume,
                             char message[1024])
{
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){limit, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    lac_status status = run(w, pattern, method, resume);
    snprintf(message, 1024, "%s", lac_last_error());
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    return status;
}

/* Wherever the disk is full: one failure, with the names of the tensor and the file, and only what was written was told. */
static void the_disk_fills_up(void **state)
{
    (void)state;
    char message[1024];
    start("2:4", LAC_METHOD_MAGNITUDE);
    bytes all = read_file(whole);
    int most = 0;
    for (size_t limit = 2560; limit < all.size; limit += (size_t)test_scale() * 61) { /* the journal stays below */
        watch w = {0}, none = {0}, again = {0};
        assert_int_equal(run_within(limit, &none, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_NO, message), LAC_STATUS_IO);
        assert_int_equal(test_folder_files(), 3);
        assert_int_equal(run_within(limit, &w, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES, message), LAC_STATUS_IO);
        assert_int_equal(w.count, none.count);
        assert_true(w.count < TENSORS);
        if (w.count > most) most = w.count;
        const char *said = strstr(message, "out.safetensors: cannot write");
        assert_non_null(said);
        assert_null(strstr(said + strlen("out.safetensors: cannot write"), "cannot write"));
        assert_int_equal(strncmp(message, names[w.count], strlen(names[w.count])), 0);
        assert_false(exists(out));
        assert_ok(run(&again, "2:4", LAC_METHOD_MAGNITUDE, LAC_RESUME_YES));
        assert_int_equal(again.resumed, w.count > 0 ? w.count : 0);
        assert_int_equal(again.count, TENSORS);
        expect_whole();
    }
    assert_int_equal(most, TENSORS - 1);
    free(all.data);
}

/* A tensor that cannot be pruned while the one before is written: that one is finished, told and noted; and where it fails too, its failure
 * is the one that is told. */
static void the_first_failure_is_told(void **state)
{
    (void)state;
    char message[1024];
    enum { BAD = 3 };
    start("2:4", LAC_METHOD_OBS);
    cut_off_after(BAD, "2:4", LAC_METHOD_OBS);
    bytes weights = read_file(in), partial = read_file("out.safetensors.partial");
    float nan = NAN; /* in the first of the last three tensors */
    memcpy(weights.data + weights.size - (TENSORS - BAD) * N * K * sizeof nan, &nan, sizeof nan);
    test_write_file(test_path(in), weights.data, weights.size);
    watch w = {0}, resumed = {0}, full = {0};
    assert_fails(run(&w, "2:4", LAC_METHOD_OBS, LAC_RESUME_RESTART), LAC_STATUS_INVALID_ARGUMENT, names[BAD]);
    assert_int_equal(w.count, BAD);
    assert_fails(run(&resumed, "2:4", LAC_METHOD_OBS, LAC_RESUME_YES), LAC_STATUS_INVALID_ARGUMENT, names[BAD]);
    assert_int_equal(resumed.resumed, BAD);
    assert_int_equal(run_within(partial.size - 1, &full, "2:4", LAC_METHOD_OBS, LAC_RESUME_RESTART, message), LAC_STATUS_IO);
    assert_int_equal(strncmp(message, names[BAD - 1], strlen(names[BAD - 1])), 0);
    assert_int_equal(full.count, BAD - 1);
    free(weights.data), free(partial.data);
}

/* The published values of XXH64, and pieces of every size. */
static void digests(void **state)
{
    (void)state;
    unsigned char data[100];
    lac_digest digest = lac_digest_begin();
    assert_true(lac_digest_value(&digest) == UINT64_C(0xef46db3751d8e999));
    lac_digest_add(&digest, "abc", 3);
    assert_true(lac_digest_value(&digest) == UINT64_C(0x44bc2cf5ad770999));
    for (int i = 0; i < 100; i++) data[i] = (unsigned char)(i * 37);
    for (size_t length = 0; length <= sizeof data; length++) {
        lac_digest at_once = lac_digest_begin();
        lac_digest_add(&at_once, data, length);
        for (size_t piece = 1; piece <= length; piece++) {
            lac_digest pieces = lac_digest_begin();
            for (size_t from = 0; from < length; from += piece)
                lac_digest_add(&pieces, data + from, length - from < piece ? length - from : piece);
            assert_true(lac_digest_value(&pieces) == lac_digest_value(&at_once));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests),
        cmocka_unit_test(goes_on_from_everywhere),
        cmocka_unit_test(goes_on_in_another_locale),
        cmocka_unit_test(restarts_when_told),
        cmocka_unit_test(goes_on_behind_a_link),
        cmocka_unit_test(refuses_what_changed),
        cmocka_unit_test(believes_no_torn_journal),
        cmocka_unit_test(does_damaged_tensors_again),
        cmocka_unit_test(two_runs_do_not_meet),
        cmocka_unit_test(failures_keep_what_is_finished),
        cmocka_unit_test(the_disk_fills_up),
        cmocka_unit_test(the_first_failure_is_told),
    };
    return cmocka_run_group_tests_name("checkpoints that resume", tests, NULL, NULL);
}
