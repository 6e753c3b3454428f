/* test_checkpoint_links.c - an order of a layer's inputs folded into the layers before it: the network computes what it computes with the order stored beside the
 * weight; producers that feed several layers; runs that were cut off; memory; what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"

enum { D = 24, H = 48, OUT = 20, SIDE = 6, SAMPLES = 64, BLOCKS = 2, TRIES = 4, PER_BLOCK = 5 };

static const char in[] = "in.safetensors", inputs[] = "x.safetensors";

/* A block: h = relu(up x + bias) * scale, y = down h, and s = side h, which reads the same. In block 1 the consumer comes first in the file. */
static const struct {
    const char *name;
    int64_t rows, cols; /* cols 0: a vector */
} parts[PER_BLOCK] = {
    {"down.weight", OUT, H}, {"side.weight", SIDE, H}, {"up.weight", H, D}, {"up.bias", H, 0}, {"scale", H, 0}};

static void full_name(int block, const char *part, char name[64]) { snprintf(name, 64, "blocks.%d.%s", block, part); }

static void fill(float *data, int64_t count, int64_t seed)
{
    test_random random = test_random_make("links", seed);
    for (int64_t i = 0; i < count; i++) data[i] = (float)test_random_gaussian(&random) * (i % 3 ? 1.0f : 0.2f);
}

static void write_model(const char *path, int blocks, int64_t seed)
{
    static float data[H * H];
    lac_writer *writer;
    assert_ok(lac_writer_open(test_path(path), &writer));
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0; b < blocks; b++)
            for (int i = 0; i < PER_BLOCK; i++) {
                int p = b % 2 ? i : PER_BLOCK - 1 - i;
                char name[64];
                int64_t cols = parts[p].cols ? parts[p].cols : 1, count = parts[p].rows * cols;
                full_name(b, parts[p].name, name);
                lac_tensor_info info = {
                    .size = sizeof info, .name = name, .dtype = LAC_DTYPE_F32, .shape = {parts[p].rows, cols}};
                info.rank = parts[p].cols ? 2 : 1;
                fill(data, count, seed + 10 * b + p);
                if (pass == 0)
                    assert_ok(lac_writer_declare_tensor(writer, &info));
                else
                    assert_ok(lac_writer_write_tensor(writer, name, data, (uint64_t)count * sizeof *data));
            }
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

/* Inputs, and gradients, of down and up in every block. */
static void write_inputs(int blocks)
{
    static float data[SAMPLES * H * H];
    lac_writer *writer;
    assert_ok(lac_writer_open(test_path(inputs), &writer));
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0; b < blocks; b++)
            for (int i = 0; i < 4; i++) {
                bool down = i % 2 == 0, gradients = i >= 2;
                char name[64];
                int64_t n = down ? OUT : H, k = down ? H : D, count = SAMPLES * k * (gradients ? n : 1);
                snprintf(name, sizeof name, "blocks.%d.%s.%s", b, down ? "down" : "up", gradients ? "gradient" : "input");
                lac_tensor_info info = {.size = sizeof info, .name = name, .dtype = LAC_DTYPE_F32, .rank = gradients ? 3 : 2};
                info.shape[0] = SAMPLES, info.shape[1] = gradients ? n : k, info.shape[2] = gradients ? k : 0;
                fill(data, count, 500 + 10 * b + i);
                if (!gradients) /* inputs that have something in common */
                    for (int64_t s = 0; s < SAMPLES; s++)
                        for (int64_t c = 0; c < k; c++) data[s * k + c] += data[s * k] * (float)(c % 5);
                if (pass == 0)
                    assert_ok(lac_writer_declare_tensor(writer, &info));
                else
                    assert_ok(lac_writer_write_tensor(writer, name, data, (uint64_t)count * sizeof *data));
            }
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
}

typedef struct watch {
    int count, stop_after, resumed;
    uint32_t moved[16];
    char name[16][64];
    double error[16], energy[16];
} watch;

static int see(void *user, const lac_layer_report *report)
{
    watch *w = user;
    assert_true(w->count < 16);
    snprintf(w->name[w->count], sizeof w->name[0], "%s", report->name);
    w->error[w->count] = report->output_error, w->energy[w->count] = report->energy_kept;
    w->moved[w->count++] = report->moved;
    w->resumed += report->resumed;
    return w->stop_after > 0 && w->count - w->resumed == w->stop_after;
}

static int at_name(const watch *w, const char *name)
{
    for (int i = 0; i < w->count; i++)
        if (strcmp(w->name[i], name) == 0) return i;
    fail_msg("no report of %s", name);
    return -1;
}

/* A run: include "a|b" prunes these, the rest is copied; producers "x|y" likewise. */
typedef struct setup {
    const char *pattern, *include, *producers;
    lac_method method;
    uint32_t permute;
    int keep_dense;
    lac_resume resume;
} setup;

static size_t split(const char *text, char *copy, const char **list)
{
    size_t count = 0;
    strcpy(copy, text ? text : "");
    for (char *at = strtok(copy, "|"); at; at = strtok(NULL, "|")) list[count++] = at;
    return count;
}

static lac_status run(const setup *s, const char *to, watch *w)
{
    lac_pattern pattern;
    char copies[2][512];
    const char *include[8], *producers[8];
    assert_ok(lac_pattern_parse(s->pattern, &pattern));
    lac_checkpoint_options options = {.size = sizeof options, .pattern = &pattern, .include = include, .producers = producers};
    options.include_count = split(s->include, copies[0], include);
    options.producer_count = split(s->producers, copies[1], producers);
    lac_prune_options prune = {.size = sizeof prune, .method = s->method, .permute = s->permute};
    options.prune = &prune;
    options.keep_dense = s->keep_dense, options.resume = s->resume;
    options.on_layer = see, options.user = w;
    if (s->method >= LAC_METHOD_WANDA) options.calibration = test_path(inputs);
    return lac_checkpoint_prune(test_path(in), test_path(to), &options);
}

/* A tensor of a file, dense or compressed, as doubles [rows][cols]. */
static void load(const lac_file *file, int block, int part, double *to)
{
    char name[64];
    float values[H * H];
    int64_t rows = parts[part].rows, cols = parts[part].cols ? parts[part].cols : 1;
    lac_tensor_info tensor = {.size = sizeof tensor};
    full_name(block, parts[part].name, name);
    if (lac_file_find_tensor(file, name, &tensor) == LAC_STATUS_OK) {
        memcpy(values, tensor.data, (size_t)(rows * cols) * sizeof *values);
    } else {
        lac_weight *weight;
        lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = rows, .cols = cols};
        assert_ok(lac_file_load_weight(file, name, &weight));
        assert_ok(lac_weight_decompress(weight, &dense));
        lac_weight_free(weight);
    }
    for (int64_t i = 0; i < rows * cols; i++) to[i] = values[i];
}

/* y and s of every block for TRIES inputs. */
typedef struct outputs {
    double y[BLOCKS][TRIES][OUT], s[BLOCKS][TRIES][SIDE];
} outputs;

static outputs compute(const char *path)
{
    static double down[OUT * H], side[SIDE * H], up[H * D], bias[H], scale[H];
    outputs o;
    lac_file *file;
    assert_ok(lac_file_open(test_path(path), &file));
    for (int b = 0; b < BLOCKS; b++) {
        double *const to[PER_BLOCK] = {down, side, up, bias, scale};
        for (int p = 0; p < PER_BLOCK; p++) load(file, b, p, to[p]);
        test_random random = test_random_make("inputs of the network", b);
        for (int t = 0; t < TRIES; t++) {
            double x[D], h[H];
            for (int i = 0; i < D; i++) x[i] = test_random_gaussian(&random);
            for (int i = 0; i < H; i++) {
                h[i] = bias[i];
                for (int j = 0; j < D; j++) h[i] += up[i * D + j] * x[j];
                h[i] = (h[i] > 0 ? h[i] : 0) * scale[i];
            }
            for (int i = 0; i < OUT; i++) {
                o.y[b][t][i] = 0;
                for (int j = 0; j < H; j++) o.y[b][t][i] += down[i * H + j] * h[j];
            }
            for (int i = 0; i < SIDE; i++) {
                o.s[b][t][i] = 0;
                for (int j = 0; j < H; j++) o.s[b][t][i] += side[i * H + j] * h[j];
            }
        }
    }
    lac_file_close(file);
    return o;
}

static void expect_alike(const outputs *a, const outputs *b)
{
    for (size_t i = 0; i < sizeof *a / sizeof(double); i++) {
        double x = ((const double *)a)[i], y = ((const double *)b)[i];
        assert_true(isfinite(x) && fabs(x - y) <= 1e-9 * (1 + fabs(x)));
    }
}

static void start(void)
{
    test_folder_clear();
    write_model(in, BLOCKS, 1);
    write_inputs(BLOCKS);
}

/* Side reads h as well, so it must be named too: as it is not pruned, it follows. */
static const char both[] = "blocks.*.down.weight=blocks.*.up.weight,blocks.*.scale|blocks.*.side.weight=blocks.*.up.weight";

static bool has_order(const char *path, const char *name)
{
    lac_file *file;
    lac_weight *weight;
    lac_weight_info info = {.size = sizeof info};
    assert_ok(lac_file_open(test_path(path), &file));
    assert_ok(lac_file_load_weight(file, name, &weight));
    assert_ok(lac_weight_get_info(weight, &info));
    lac_weight_free(weight);
    lac_file_close(file);
    return info.has_col_perm;
}

static void the_network_stays_the_same(void **state)
{
    (void)state;
    static const setup setups[] = {{.pattern = "2:4", .method = LAC_METHOD_MAGNITUDE},
                                   {.pattern = "4:16", .method = LAC_METHOD_WANDA},
                                   {.pattern = "2:4", .method = LAC_METHOD_OBS},
                                   {.pattern = "1:4", .method = LAC_METHOD_FISHER},
                                   {.pattern = "vw4:2:8", .method = LAC_METHOD_MAGNITUDE},
                                   {.pattern = "vw4:2:8", .method = LAC_METHOD_OBS, .permute = LAC_PERMUTE_ROWS},
                                   {.pattern = "4:2:8", .method = LAC_METHOD_MAGNITUDE}};
    int moves = 0;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        watch folded_watch = {0}, stored_watch = {0}, dense_watch = {0};
        setup folded = setups[i], stored = setups[i], dense = setups[i];
        start();
        folded.include = stored.include = dense.include = "*.down.weight";
        folded.producers = dense.producers = both, dense.keep_dense = 1;
        stored.permute |= LAC_PERMUTE_COLUMNS;
        assert_ok(run(&folded, "folded", &folded_watch));
        assert_ok(run(&stored, "stored", &stored_watch));
        assert_ok(run(&dense, "dense", &dense_watch));
        outputs a = compute("folded"), b = compute("stored"), c = compute("dense");
        expect_alike(&b, &a);
        expect_alike(&b, &c);
        for (int k = 0; k < BLOCKS; k++) {
            char name[64];
            full_name(k, "down.weight", name);
            assert_false(has_order("folded", name));
            assert_true(has_order("stored", name));
            int x = at_name(&folded_watch, name), y = at_name(&stored_watch, name);
            assert_true(fabs(folded_watch.energy[x] - stored_watch.energy[y]) < 1e-9);
            assert_true(fabs(folded_watch.error[x] - stored_watch.error[y]) < 1e-6);
            /* Second order and V:N:M may find that the plain order loses less; then nothing moves. */
            uint32_t moved = folded_watch.moved[x];
            moves += moved != 0;
            if (i < 2) assert_int_equal(moved, LAC_PERMUTE_COLUMNS);
            full_name(k, "up.bias", name);
            assert_int_equal(folded_watch.moved[at_name(&folded_watch, name)], moved ? LAC_PERMUTE_ROWS : 0);
            full_name(k, "side.weight", name);
            assert_int_equal(folded_watch.moved[at_name(&folded_watch, name)], moved);
        }
    }
    print_message("%d of %d consumers moved\n", moves, (int)(sizeof setups / sizeof *setups) * BLOCKS);
    assert_true(moves > 4 * BLOCKS); /* by second order too, somewhere */
}

/* The producer is pruned too: row by row it is what it would be alone; vectors of rows are chosen in the new order. */
static void producers_are_pruned_in_their_new_order(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "vw4:2:8"};
    for (int i = 0; i < 2; i++) {
        start();
        watch w[3] = {0};
        setup all = {.pattern = patterns[i], .include = "*.down.weight|*.up.weight", .producers = both};
        setup down = {.pattern = patterns[i], .include = "*.down.weight", .permute = LAC_PERMUTE_COLUMNS};
        assert_ok(run(&all, "all", &w[0]));
        assert_ok(run(&down, "down", &w[1]));
        lac_file *source, *made, *order_file;
        assert_ok(lac_file_open(test_path(in), &source));
        assert_ok(lac_file_open(test_path("all"), &made));
        assert_ok(lac_file_open(test_path("down"), &order_file));
        for (int b = 0; b < BLOCKS; b++) {
            static double up[H * D], got[H * D];
            char name[64];
            float moved[H * D];
            lac_weight *weight;
            lac_span order;
            lac_pattern pattern;
            lac_mask *mask;
            full_name(b, "down.weight", name);
            assert_ok(lac_file_load_weight(order_file, name, &weight));
            assert_ok(lac_weight_get_part(weight, LAC_PART_COL_PERM, &order));
            load(source, b, 2, up);
            load(made, b, 2, got);
            for (int r = 0; r < H; r++)
                for (int c = 0; c < D; c++) moved[r * D + c] = (float)up[(int)((const uint32_t *)order.data)[r] * D + c];
            lac_matrix matrix = {.data = moved, .dtype = LAC_DTYPE_F32, .rows = H, .cols = D};
            assert_ok(lac_pattern_parse(patterns[i], &pattern));
            assert_ok(lac_prune(&matrix, &pattern, NULL, &mask));
            assert_ok(lac_mask_apply(mask, &matrix));
            for (int e = 0; e < H * D; e++) assert_true(moved[e] == (float)got[e]);
            lac_mask_free(mask);
            lac_weight_free(weight);
            full_name(b, "up.weight", name);
            assert_int_equal(w[0].moved[at_name(&w[0], name)], LAC_PERMUTE_ROWS);
            assert_false(has_order("all", name));
        }
        lac_file_close(source);
        lac_file_close(made);
        lac_file_close(order_file);
    }
}

/* Two consumers of one producer, both pruned: one order for both, the first's. */
static void consumers_share_an_order(void **state)
{
    (void)state;
    start();
    watch shared = {0}, plain = {0};
    setup s = {.pattern = "2:4", .include = "*.down.weight|*.side.weight", .producers = both}, without = s;
    without.producers = NULL;
    assert_ok(run(&s, "shared", &shared));
    assert_ok(run(&without, "plain", &plain));
    for (int b = 0; b < BLOCKS; b++) {
        char down[64], side[64];
        full_name(b, "down.weight", down);
        full_name(b, "side.weight", side);
        bool down_first = at_name(&shared, down) < at_name(&shared, side);
        const char *first = down_first ? down : side;
        assert_true(shared.energy[at_name(&shared, first)] > plain.energy[at_name(&plain, first)]);
        assert_false(has_order("shared", down) || has_order("shared", side));
    }
    /* Each is pruned in that order: what is stored for it is what its own columns in that order give. */
    lac_file *source, *made;
    assert_ok(lac_file_open(test_path(in), &source));
    assert_ok(lac_file_open(test_path("shared"), &made));
    for (int b = 0; b < BLOCKS; b++) {
        static double bias[H], moved_bias[H], side[SIDE * H], got[SIDE * H];
        load(source, b, 3, bias);
        load(made, b, 3, moved_bias);
        load(source, b, 1, side);
        load(made, b, 1, got);
        for (int i = 0; i < H; i++) {
            int from = 0; /* biases are all different: they tell the order */
            while (bias[from] != moved_bias[i]) from++;
            for (int r = 0; r < SIDE; r++) assert_true(got[r * H + i] == 0 || got[r * H + i] == side[r * H + from]);
        }
    }
    lac_file_close(source);
    lac_file_close(made);
}

static void expect_same_file(const char *a, const char *b)
{
    unsigned char *data[2];
    size_t size[2];
    const char *names[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(test_path(names[i]), "rb");
        assert_non_null(file);
        fseek(file, 0, SEEK_END);
        size[i] = (size_t)ftell(file);
        rewind(file);
        data[i] = malloc(size[i]);
        assert_int_equal(fread(data[i], 1, size[i], file), size[i]);
        fclose(file);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(data[0], data[1], size[0]);
    free(data[0]);
    free(data[1]);
}

static void cut_off_runs_go_on(void **state)
{
    (void)state;
    static const lac_method methods[] = {LAC_METHOD_MAGNITUDE, LAC_METHOD_OBS};
    for (int m = 0; m < 2; m++)
        for (int after = 1; after < BLOCKS * PER_BLOCK; after++) {
            start();
            watch whole = {0}, cut = {.stop_after = after}, rest = {0};
            setup s = {.pattern = "2:4", .include = "*.down.weight|*.up.weight", .producers = both, .method = methods[m]};
            assert_ok(run(&s, "whole", &whole));
            s.resume = LAC_RESUME_YES;
            assert_status(run(&s, "out", &cut), LAC_STATUS_CANCELLED);
            assert_ok(run(&s, "out", &rest));
            /* A run that had pruned nothing yet leaves nothing. */
            assert_true(rest.resumed == after || (rest.resumed == 0 && cut.count == after));
            expect_same_file("whole", "out");
            assert_int_equal(test_folder_files(), 4);
        }
}

static void changed_inputs_are_refused(void **state)
{
    (void)state;
    start();
    watch cut = {.stop_after = 4}, rest = {0};
    setup s = {.pattern = "2:4", .include = "*.down.weight|*.up.weight", .producers = both, .resume = LAC_RESUME_YES};
    assert_status(run(&s, "out", &cut), LAC_STATUS_CANCELLED);
    s.producers = "blocks.*.down.weight=blocks.*.up.weight";
    assert_status(run(&s, "out", &rest), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "producers"));
    s.producers = both;
    write_model(in, BLOCKS, 3);
    assert_status(run(&s, "out", &rest), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "the weights of it changed"));
    s.resume = LAC_RESUME_RESTART;
    rest = (watch){0};
    assert_ok(run(&s, "out", &rest));
}

/* ---- memory */

static uint64_t live, peak;

static void *count_allocate(size_t bytes, void *user)
{
    (void)user;
    char *block = malloc(bytes + 64);
    if (!block) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    live += bytes;
    if (live > peak) peak = live;
    return block + 64;
}

static void count_release(void *block, void *user)
{
    (void)user;
    if (!block) return;
    size_t bytes;
    memcpy(&bytes, (char *)block - 64, sizeof bytes);
    live -= bytes;
    free((char *)block - 64);
}

static uint64_t peak_of(int blocks)
{
    test_folder_clear();
    write_model(in, blocks, 1);
    write_inputs(blocks);
    lac_pattern pattern;
    const char *include[] = {"*.down.weight", "*.up.weight"}, *producers[] = {"blocks.*.down.weight=blocks.*.up.weight"};
    assert_ok(lac_pattern_parse("2:4", &pattern));
    lac_checkpoint_options options = {.size = sizeof options,
                                      .pattern = &pattern,
                                      .include = include,
                                      .include_count = 2,
                                      .producers = producers,
                                      .producer_count = 1,
                                      .calibration = test_path(inputs)};
    lac_prune_options prune = {.size = sizeof prune, .method = LAC_METHOD_OBS, .threads = 1};
    options.prune = &prune;
    live = peak = 0;
    assert_ok(lac_set_allocator(count_allocate, count_release, NULL));
    assert_ok(lac_checkpoint_prune(test_path(in), test_path("out"), &options));
    assert_int_equal(live, 0);
    assert_ok(lac_set_allocator(NULL, NULL, NULL));
    return peak;
}

/* More layers need no more memory but for their names and orders. */
static void memory_is_one_layers(void **state)
{
    (void)state;
    uint64_t two = peak_of(2), twelve = peak_of(12);
    print_message("peak of 2 blocks %llu bytes, of 12 %llu\n", (unsigned long long)two, (unsigned long long)twelve);
    assert_true(twelve - two < 10 * (H * sizeof(uint32_t) + PER_BLOCK * 1024));
    assert_true(two > H * H * sizeof(float)); /* the moments of down were there */
}

/* ---- what is refused */

static void wrong_producers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *producers, *says, *names;
    } cases[] = {
        {"down", "CONSUMER=PRODUCER", "'down'"},
        {"=a", "CONSUMER=PRODUCER", "'=a'"},
        {"blocks.9.down.weight=blocks.0.up.weight", "has no dense tensor", "'blocks.9.down.weight'"},
        {"blocks.*.down.weight=blocks.*.none", "has no dense tensor", "'blocks.0.none'"},
        {"blocks.*.down.weight=blocks.*.*.weight", "more * than the consumer", "'blocks.*.*.weight'"},
        {"blocks.*.down.weight=blocks.*.up.weight,", "a producer is empty", "blocks.*.up.weight,"},
        {"blocks.0.up.bias=blocks.0.up.weight", "a matrix is needed", "'blocks.0.up.bias' has rank 1"},
        {"blocks.0.down.weight=blocks.0.side.weight", "has 6 rows", "'blocks.0.down.weight' has 48 inputs"},
        {"blocks.0.up.weight=blocks.0.down.weight", "has 20 rows", "'blocks.0.up.weight' has 24 inputs"},
        {"*********=x", "more than 8 *", "*********=x"},
    };
    start();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        watch w = {0};
        setup s = {.pattern = "2:4", .producers = cases[i].producers};
        assert_status(run(&s, "out", &w), LAC_STATUS_INVALID_ARGUMENT);
        if (!strstr(lac_last_error(), cases[i].says) || !strstr(lac_last_error(), cases[i].names) ||
            !strstr(lac_last_error(), "producers"))
            fail_msg("%s: %s", cases[i].producers, lac_last_error());
        assert_int_equal(test_folder_files(), 2);
    }
    watch w = {0};
    setup blocks = {.pattern = "bw4x4:1:2", .producers = both};
    assert_status(run(&blocks, "out", &w), LAC_STATUS_UNSUPPORTED);
    assert_non_null(strstr(lac_last_error(), "no groups of single inputs"));
}

/* Square layers that make each other's inputs: whose order comes first? */
static void circles_are_refused(void **state)
{
    (void)state;
    static float data[H * H];
    lac_writer *writer;
    test_folder_clear();
    assert_ok(lac_writer_open(test_path(in), &writer));
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 2; i++) {
            lac_tensor_info info = {
                .size = sizeof info, .name = i ? "b" : "a", .dtype = LAC_DTYPE_F32, .rank = 2, .shape = {H, H}};
            fill(data, H * H, 70 + i);
            if (pass == 0)
                assert_ok(lac_writer_declare_tensor(writer, &info));
            else
                assert_ok(lac_writer_write_tensor(writer, info.name, data, sizeof data));
        }
    assert_ok(lac_writer_commit(writer));
    lac_writer_free(writer);
    watch w = {0};
    setup s = {.pattern = "2:4", .producers = "a=b|b=a"};
    assert_status(run(&s, "out", &w), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "makes its own inputs"));
    s.producers = "b=a"; /* one way is fine */
    assert_ok(run(&s, "out", &w));
}

/* ---- the same by hand: lac_mask_reorder */

static void masks_move(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "vw4:2:8", "4:2:8", "shfl4:50%"};
    for (int i = 0; i < 4; i++) {
        test_random random = test_random_make("masks_move", i);
        float values[OUT * H], moved[OUT * H];
        uint32_t rows[OUT];
        lac_pattern pattern;
        lac_mask *mask, *turned;
        lac_mask_info info = {.size = sizeof info}, after = {.size = sizeof after};
        for (int e = 0; e < OUT * H; e++) values[e] = (float)test_random_gaussian(&random);
        for (int r = 0; r < OUT; r++) rows[r] = (uint32_t)((r * 7 + 3) % OUT);
        lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = OUT, .cols = H}, new_order = dense;
        bool columns = i < 3;
        lac_prune_options options = {.size = sizeof options, .permute = columns ? LAC_PERMUTE_COLUMNS : 0};
        assert_ok(lac_pattern_parse(patterns[i], &pattern));
        assert_ok(lac_prune(&dense, &pattern, &options, &mask));
        assert_ok(lac_mask_get_info(mask, &info));
        const uint32_t *cols = info.col_perm;
        assert_ok(lac_mask_reorder(mask, i == 3 ? rows : NULL, cols, &turned));
        assert_ok(lac_mask_get_info(turned, &after));
        assert_null(after.col_perm);
        assert_int_equal(after.kept, info.kept);
        for (int r = 0; r < OUT; r++)
            for (int c = 0; c < H; c++) {
                int from_row = i == 3 ? (int)rows[r] : r, from_col = cols ? (int)cols[c] : c;
                assert_int_equal(lac_mask_get(turned, r, c), lac_mask_get(mask, from_row, from_col));
                moved[r * H + c] = values[from_row * H + from_col];
            }
        /* The stored order of rows still names the rows that were together. */
        for (int r = 0; info.row_perm && r < OUT; r++) assert_int_equal(rows[after.row_perm[r]], info.row_perm[r]);
        new_order.data = moved;
        assert_ok(lac_mask_apply(turned, &new_order));
        lac_weight *weight;
        assert_ok(lac_weight_compress(&new_order, turned, NULL, &weight)); /* it obeys its pattern */
        lac_weight_free(weight);
        lac_mask_free(turned);
        lac_mask_free(mask);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_network_stays_the_same),
        cmocka_unit_test(producers_are_pruned_in_their_new_order),
        cmocka_unit_test(consumers_share_an_order),
        cmocka_unit_test(cut_off_runs_go_on),
        cmocka_unit_test(changed_inputs_are_refused),
        cmocka_unit_test(memory_is_one_layers),
        cmocka_unit_test(wrong_producers_are_refused),
        cmocka_unit_test(circles_are_refused),
        cmocka_unit_test(masks_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
