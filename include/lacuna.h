/* lacuna.h - multiply dense activations by N:M-sparse weights.
 *
 *     Y[m,n] = act(alpha * X[m,k] * W[n,k]^T + bias[n]) + beta * C[m,n]
 *
 * m tokens, n outputs, k inputs; W is sparse, everything else is dense. The way through the library:
 *
 *     lac_prune             dense W + pattern -> mask      which weights stay
 *     lac_weight_compress   dense W + mask    -> weight    the compressed W, the same for every device
 *     lac_plan_create       weight + m        -> plan      one kernel, chosen and prepared
 *     lac_plan_execute      plan + pointers                the product
 *
 * Rules that hold for every call:
 *   - It returns a lac_status. On failure lac_last_error() says which argument was wrong and what its value was,
 *     the outputs are untouched, nothing is leaked, and the objects that went in are still usable.
 *   - It never prints, aborts, or changes the state of the process.
 *   - Structs that open with `size` are zero-initialised by the caller, who then sets size = sizeof(the struct); a field
 *     left at zero has its documented default. That is how they can grow without breaking old callers, and why none lies
 *     within another: they are pointed to.
 *   - Weights, masks and plans are immutable once made and may be shared by many threads. Free them in any order:
 *     a plan keeps what it needs of its weight and its device.
 *   - A child of fork() keeps to one thread (threads = 1) where its parent has used several, for OpenMP's threads are not in
 *     it and it would wait for them for ever. Calls that take no number of threads do so by themselves. It keeps to the CPU
 *     where its parent has opened a GPU.
 *   - Names that are passed in are copied; names that come out live as long as the object they came from.
 */
#ifndef LACUNA_H
#define LACUNA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LAC_API __attribute__((visibility("default")))
#else
#define LAC_API
#endif

#define LAC_VERSION_MAJOR 0
#define LAC_VERSION_MINOR 1
#define LAC_VERSION_PATCH 0

/* The largest n, k and m. */
#define LAC_MAX_DIMENSION 2147483647
/* The largest M of an N:M pattern. */
#define LAC_MAX_GROUP 256
/* The longest text of a pattern, terminator included. */
#define LAC_PATTERN_TEXT_SIZE 64

/* ---------------------------------------------------------------- status, errors, log, version */

typedef enum lac_status {
    LAC_STATUS_OK = 0,
    LAC_STATUS_INVALID_ARGUMENT = 1,   /* an argument is wrong by itself                              */
    LAC_STATUS_OUT_OF_MEMORY = 2,      /* host or device memory                                       */
    LAC_STATUS_IO = 3,                 /* the operating system refused: open, read, write, rename     */
    LAC_STATUS_BAD_FILE = 4,           /* the file's bytes break the rules of its format              */
    LAC_STATUS_NOT_FOUND = 5,          /* no such tensor, kernel or device                            */
    LAC_STATUS_PATTERN_VIOLATED = 6,   /* the matrix or mask does not obey the pattern                */
    LAC_STATUS_VALUE_OUT_OF_RANGE = 7, /* a value does not fit the dtype it is to be stored in        */
    LAC_STATUS_UNSUPPORTED = 8,        /* a sound request that this build or device cannot serve      */
    LAC_STATUS_DEVICE = 9,             /* the device or its driver failed                             */
    LAC_STATUS_CANCELLED = 10,         /* a progress callback asked to stop                           */
    LAC_STATUS_INTERNAL = 11           /* a defect in Lacuna                                          */
} lac_status;

/* A short name such as "invalid argument"; never NULL. */
LAC_API const char *lac_status_name(lac_status status);

/* This thread's message for its last call that failed; "" when none has. Valid until this thread's next call: one that
 * succeeds may leave another text here, of something that it tried. */
LAC_API const char *lac_last_error(void);

/* "0.1.0", of the library that runs rather than of this header. */
LAC_API const char *lac_version(void);

typedef enum lac_log_level { LAC_LOG_LEVEL_WARNING = 1, LAC_LOG_LEVEL_INFO = 2, LAC_LOG_LEVEL_DEBUG = 3 } lac_log_level;

typedef void (*lac_log_fn)(void *user, lac_log_level level, const char *message);

/* Sends messages up to `level` to `fn`, from any thread; NULL (the default) drops them. `fn` may be called while Lacuna holds
 * locks of its own, so it calls nothing of Lacuna's. */
LAC_API void lac_set_log(lac_log_fn fn, void *user, lac_log_level level);

/* Memory comes from malloc unless this replaces it; call it before any other function and from one thread. Both
 * functions must be given, or both NULL to go back to malloc. Blocks need the alignment of malloc's. */
LAC_API lac_status lac_set_allocator(void *(*allocate)(size_t bytes, void *user), void (*release)(void *block, void *user),
                                     void *user);

/* ---------------------------------------------------------------- dtypes and matrices */

/* 0 is "not said"; where that is allowed, the field's comment gives the default. */
typedef enum lac_dtype {
    LAC_DTYPE_NONE = 0,
    LAC_DTYPE_F32 = 1,
    LAC_DTYPE_F16 = 2,
    LAC_DTYPE_BF16 = 3,
    LAC_DTYPE_F64 = 4,  /* input to prune and compress, output of decompress; never a weight's own dtype */
    LAC_DTYPE_I8 = 5,   /* reserved */
    LAC_DTYPE_E4M3 = 6, /* reserved */
    LAC_DTYPE_E5M2 = 7  /* reserved */
} lac_dtype;

/* "f32"; "none" for 0. Never NULL. */
LAC_API const char *lac_dtype_name(lac_dtype dtype);
/* Reads "f32", "fp32", "float32", "F32" and their like. */
LAC_API lac_status lac_dtype_parse(const char *text, lac_dtype *out);
/* Bytes an element; 0 for a number that is no dtype. */
LAC_API size_t lac_dtype_size(lac_dtype dtype);

/* Row-major activations X[m][k] are token-major, column-major ones X[k][m] are feature-major. */
typedef enum lac_layout {
    LAC_LAYOUT_ROW_MAJOR = 0,
    LAC_LAYOUT_COLUMN_MAJOR = 1,
    LAC_LAYOUT_TOKEN_MAJOR = LAC_LAYOUT_ROW_MAJOR,
    LAC_LAYOUT_FEATURE_MAJOR = LAC_LAYOUT_COLUMN_MAJOR
} lac_layout;

/* A view of somebody's dense matrix; it owns nothing. Calls that read a matrix never write through `data`. */
typedef struct lac_matrix {
    void *data;        /* aligned to its element; may be NULL when rows or cols is 0              */
    lac_dtype dtype;   /* must be said                                                            */
    lac_layout layout; /* row-major when zero                                                     */
    int64_t rows;      /* of W: n                                                                 */
    int64_t cols;      /* of W: k                                                                 */
    int64_t ld;        /* elements from one row (column-major: column) to the next; 0: no padding */
} lac_matrix;

/* ---------------------------------------------------------------- patterns */

typedef enum lac_family {
    LAC_FAMILY_ELEMENT = 1, /* "2:4"         each row keeps N of every M consecutive inputs             */
    LAC_FAMILY_VECTOR = 2,  /* "vw32:8:32"   32 consecutive outputs keep the same N of every M inputs   */
    LAC_FAMILY_BLOCK = 3,   /* "bw4x4:2:8"   blocks of 4 outputs x 4 inputs, N of every M blocks stay   */
    LAC_FAMILY_VNM = 4,     /* "64:2:8"      64 outputs select 4 of every 8 inputs, each keeps 2 of the 4 */
    LAC_FAMILY_SHUFFLED = 5 /* "shfl64:25%"  rows permuted into groups of 64 that share their inputs    */
} lac_family;

/* Which units of W[n,k] stay. A unit is unit_n consecutive outputs x unit_k consecutive inputs; the units of one such
 * band of outputs, side by side along k, form a row group. Units, groups and row groups at the end of n and k may be
 * partial: a last group of r < M units keeps min(N, r). Fill it by hand or with lac_pattern_parse. */
typedef struct lac_pattern {
    lac_family family;
    int32_t unit_n; /* ELEMENT 1; VECTOR, SHUFFLED: the vector's length; BLOCK: its height; VNM: V                    */
    int32_t unit_k; /* BLOCK: its width; all others 1                                                                 */
    int32_t n, m;   /* N:M, 1 <= N <= M <= 256 (VNM: 1 <= N <= 4 <= M); both 0 when the distribution is free          */
    double density; /* free distribution: in (0, 1] and, as a percentage, of 12 decimals at most; each row group keeps
                       at most round(density * units) units of its own choice, or 1 where that is 0. 0 when N:M. VNM is
                       always N:M, SHUFFLED always free                                                               */
} lac_pattern;

/* "2:4", "25%", "vw32:8:32", "vw32:25%", "bw4x4:2:8", "bw4x4:12.5%", "64:2:8", "shfl64:25%". */
LAC_API lac_status lac_pattern_parse(const char *text, lac_pattern *out);
/* The text that lac_pattern_parse reads back to the same pattern; buffer holds LAC_PATTERN_TEXT_SIZE or more bytes. */
LAC_API lac_status lac_pattern_format(const lac_pattern *pattern, char *buffer, size_t buffer_size);
/* The share of a large matrix that stays: N/M, or the density. 0 for an invalid pattern. */
LAC_API double lac_pattern_density(const lac_pattern *pattern);

typedef struct lac_pattern_violation {
    size_t size;
    int64_t row, col;  /* the first element, in row order, that may not be there */
    int64_t kept;      /* how many units its group keeps ...                    */
    int64_t allowed;   /* ... and how many it may                               */
    char message[256]; /* the same for people                                   */
} lac_pattern_violation;

/* OK when the nonzeros of `dense` obey the pattern (-0.0 is a zero, NaN is not); otherwise PATTERN_VIOLATED, and where
 * it first does not goes into `violation` unless that is NULL. For SHUFFLED the permutation is searched for: rows are
 * gathered greedily by their nonzero columns, so OK is proof, and PATTERN_VIOLATED means that this search found none. */
LAC_API lac_status lac_pattern_check(const lac_matrix *dense, const lac_pattern *pattern, lac_pattern_violation *violation);

/* ---------------------------------------------------------------- masks and pruning */

typedef struct lac_mask lac_mask; /* which elements of an n x k matrix stay, under which pattern */

/* What a mask or a weight keeps is called kept, even where the kept value happens to be zero. */
typedef struct lac_mask_info {
    size_t size;
    int64_t n, k;
    int64_t kept;             /* elements                                                        */
    int32_t has_pattern;      /* 0: a bare mask, as a .smtx file holds                           */
    lac_pattern pattern;      /* valid when has_pattern                                          */
    const uint32_t *row_perm; /* [n] the row of W that stands i-th, or NULL when in order        */
    const uint32_t *col_perm; /* [k] the column of W that stands j-th, or NULL when in order     */
} lac_mask_info;

/* Scores a unit by the sum over its elements. */
typedef enum lac_score {
    LAC_SCORE_DEFAULT = 0, /* L2 */
    LAC_SCORE_L1 = 1,      /* |w|  */
    LAC_SCORE_L2 = 2       /* w^2: the energy */
} lac_score;

/* What a layer's inputs are like: the sum of x x^T over samples of them, k x k numbers however many samples there are. It
 * is not safe to add to one from two threads at a time; reading it is. */
typedef struct lac_calibration lac_calibration;

typedef struct lac_calibration_info {
    size_t size;
    int64_t k;
    int64_t samples;
    int64_t dead; /* inputs that were zero in every sample */
} lac_calibration_info;

LAC_API lac_status lac_calibration_create(int64_t k, lac_calibration **out);
/* Adds samples, x [samples][k], in as many calls as are convenient. One number that is not finite, and all of x is refused. */
LAC_API lac_status lac_calibration_add(lac_calibration *calibration, const lac_matrix *x, int32_t threads);
/* Adds the sum of x x^T over so many samples, as somebody else has formed it: k x k, symmetric, finite, no diagonal element below zero. */
LAC_API lac_status lac_calibration_add_moments(lac_calibration *calibration, const lac_matrix *moments, int64_t samples);
LAC_API lac_status lac_calibration_get_info(const lac_calibration *calibration, lac_calibration_info *info);
/* What a layer's outputs lose over the samples when `pruned` takes the place of `original`, both n x k: the sum of the
 * squares of (original - pruned) x, and beside it that of original x. */
LAC_API lac_status lac_calibration_error(const lac_calibration *calibration, const lac_matrix *original,
                                         const lac_matrix *pruned, double *error, double *total);
LAC_API void lac_calibration_free(lac_calibration *calibration);

typedef enum lac_method {
    LAC_METHOD_DEFAULT = 0,   /* MAGNITUDE */
    LAC_METHOD_MAGNITUDE = 1, /* the weights alone                                                           */
    LAC_METHOD_WANDA = 2,     /* each weight times the norm of its input                                     */
    LAC_METHOD_OBS = 3,       /* second order: what the outputs lose after the others have made up for it    */
    LAC_METHOD_FISHER = 4     /* second order by gradients: what the loss rises by, likewise                 */
} lac_method;

/* Samples of the gradient of the loss with respect to W: [samples][n][k], row-major without padding. */
typedef struct lac_gradients {
    size_t size;
    const void *data; /* aligned to its element */
    lac_dtype dtype;
    int64_t samples;
} lac_gradients;

typedef struct lac_device lac_device; /* a CPU or a GPU, opened once: see below */

typedef struct lac_prune_options {
    size_t size;
    lac_score score; /* MAGNITUDE and WANDA */
    int32_t threads; /* 0: as many as OpenMP gives */
    lac_method method;
    const lac_calibration *calibration; /* WANDA and OBS need one */
    double damping;                     /* OBS, FISHER: added to the diagonal of the moments, as a share of its mean; 0: 0.01 */
    uint32_t permute;                   /* LAC_PERMUTE_*, or 0: what the mask may reorder to keep more                */
    int32_t permute_rounds;             /* of the search over columns; 0: 100. More may keep less where it goes by an estimate:
                             V:N:M, OBS, FISHER, over 2048 row groups                                                 */
    const lac_gradients *gradients;     /* FISHER needs them                                                          */
    int32_t transposable;               /* 1, for N:M with MAGNITUDE and WANDA: N of M along columns too, for training; n and k
                             multiples of M. The best choice of all that do                                           */
    const lac_device *device; /* OBS: a GPU that does the large products, with cuBLAS; NULL, or a CPU: the CPU does them     */
    const lac_pattern *schedule; /* [schedule_count] patterns on the way, say 4:8 before 2:8: each step prunes what the last one
                             left, and what went stays out wherever the next pattern allows it. Not with transposable        */
    size_t schedule_count;
} lac_prune_options;

/* An order of rows or columns goes into the mask, and from there into the weight; kernels undo it as they read X and write
 * Y. It is taken only where more is kept. */
#define LAC_PERMUTE_ROWS    1u /* vwL, V:N:M: rows that want the same inputs come together                   */
#define LAC_PERMUTE_COLUMNS 2u /* N:M of single inputs (2:4, vwL:N:M, V:N:M): columns move between groups */

/* Chooses what stays: the best choice the pattern allows under the score, except that V:N:M with M > 16
 * and SHUFFLED use a search that docs/pruning.md describes. Ties go to the lower index, so the mask is deterministic,
 * whatever the number of threads. Infinities and NaNs outrank every finite weight and so are kept first. OBS and FISHER
 * change weights as they choose: see lac_prune_and_correct. */
LAC_API lac_status lac_prune(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options,
                             lac_mask **out);
/* The same, and writes what stays into `corrected` (n x k, of any of Lacuna's floating dtypes; it may be `dense` itself),
 * with zeros for what goes. By OBS and FISHER the weights that stay have made up for those that went; by the other methods they are as
 * they were. These two need finite weights and memory for them as F32; OBS needs that of its moments too. */
LAC_API lac_status lac_prune_and_correct(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options,
                                         const lac_matrix *corrected, lac_mask **out);

/* The mask of a matrix that is pruned already; PATTERN_VIOLATED where lac_pattern_check says so. Groups with fewer
 * nonzeros than the pattern keeps are filled up with their first zeros. */
LAC_API lac_status lac_mask_from_matrix(const lac_matrix *dense, const lac_pattern *pattern, lac_mask **out);
/* A bare mask: the nonzeros of `dense`. */
LAC_API lac_status lac_mask_from_nonzeros(const lac_matrix *dense, lac_mask **out);
/* The same mask under a pattern: one that it obeys, or PATTERN_VIOLATED. */
LAC_API lac_status lac_mask_with_pattern(const lac_mask *mask, const lac_pattern *pattern, lac_mask **out);
LAC_API lac_status lac_mask_get_info(const lac_mask *mask, lac_mask_info *info);
/* 1 when W[row][col] stays, else 0; 0 out of range. */
LAC_API int lac_mask_get(const lac_mask *mask, int64_t row, int64_t col);
/* Zeroes what the mask drops, in place. */
LAC_API lac_status lac_mask_apply(const lac_mask *mask, const lac_matrix *dense);
/* The mask of W with its rows and columns in another order: row i of it is row rows[i] of `mask`, column j column cols[j]; NULL: as they are. An order
 * that the mask carries is kept, in the new numbers, and goes where it is undone by that: with cols = its col_perm what is
 * left has none. */
LAC_API lac_status lac_mask_reorder(const lac_mask *mask, const uint32_t *rows, const uint32_t *cols, lac_mask **out);
/* Sums of the squares of the finite weights: those that stay, and all; of 16-bit weights to 5e-7. */
LAC_API lac_status lac_mask_energy(const lac_mask *mask, const lac_matrix *dense, double *kept, double *total);
LAC_API void lac_mask_free(lac_mask *mask);

/* ---------------------------------------------------------------- weights: the compressed W */

typedef struct lac_weight lac_weight;

typedef enum lac_index_encoding {
    LAC_INDEX_ENCODING_AUTO = 0,     /* whichever is smaller; the tie goes to packed                      */
    LAC_INDEX_ENCODING_IMPLICIT = 1, /* nothing stored: every unit stays (N = M)                         */
    LAC_INDEX_ENCODING_PACKED = 2,   /* ceil(log2 M) bits a kept unit, least significant first            */
    LAC_INDEX_ENCODING_BITMASK = 3,  /* a bit a unit                                                      */
    LAC_INDEX_ENCODING_COLUMNS = 4   /* free distributions: counts and u32 columns                        */
} lac_index_encoding;

typedef enum lac_overflow {
    LAC_OVERFLOW_ERROR = 0,   /* VALUE_OUT_OF_RANGE, naming the element */
    LAC_OVERFLOW_SATURATE = 1 /* the largest finite value of its sign   */
} lac_overflow;

typedef struct lac_compress_options {
    size_t size;
    lac_dtype dtype;             /* of the stored values; NONE: that of the matrix (F32 for F64)       */
    lac_index_encoding encoding; /* AUTO unless one is wanted; IMPLICIT needs N = M                     */
    lac_overflow overflow;       /* a finite value too large for dtype; infinities and NaNs pass as is */
    int32_t threads;             /* 0: as many as OpenMP gives                                         */
} lac_compress_options;

typedef struct lac_weight_info {
    size_t size;
    lac_pattern pattern;
    int64_t n, k;                /* the rows and columns that this weight holds                             */
    int64_t n_out, k_in;         /* the widths of Y and X: n and k, but for shards with a permutation       */
    lac_dtype dtype;             /* of the values                                                           */
    lac_index_encoding encoding; /* of the index                                                            */
    int32_t has_row_perm, has_col_perm;
    int64_t kept;         /* values stored, fill and the padding of partial blocks included          */
    uint64_t value_bytes; /* of the values                                                           */
    uint64_t index_bytes; /* of all the rest                                                         */
    uint64_t dense_bytes; /* n * k * size of dtype                                                   */
} lac_weight_info;

/* The tensors that make up a weight, as docs/format.md specifies them to the bit. */
typedef enum lac_part {
    LAC_PART_VALUES = 0,
    LAC_PART_INDEX = 1,     /* which units stay (VNM: which 4 inputs are selected), packed or bitmask */
    LAC_PART_POSITIONS = 2, /* VNM: 2 bits a value, which of the 4                                    */
    LAC_PART_COUNTS = 3,    /* free: u32 units in each row group                                      */
    LAC_PART_COLUMNS = 4,   /* free: u32 the units kept, ascending in each row group                  */
    LAC_PART_ROW_PERM = 5,  /* u32 [n]: stored row i is output row_perm[i]                            */
    LAC_PART_COL_PERM = 6,  /* u32 [k]: stored column j reads input col_perm[j]                       */
    LAC_PART_SCALES = 7     /* reserved for 8-bit values                                              */
} lac_part;
#define LAC_PART_COUNT 8

/* "values", "index", ...; NULL past the end. */
LAC_API const char *lac_part_name(lac_part part);

typedef struct lac_span {
    const void *data; /* aligned to 64 bytes when it comes from a weight; NULL: the part is absent */
    uint64_t bytes;
} lac_span;

LAC_API lac_status lac_weight_compress(const lac_matrix *dense, const lac_mask *mask, const lac_compress_options *options,
                                       lac_weight **out);
/* Writes W with its zeros into `dense`, whose shape must be n x k, or n_out x k_in to undo a shard's permutation. */
LAC_API lac_status lac_weight_decompress(const lac_weight *weight, const lac_matrix *dense);
LAC_API lac_status lac_weight_get_info(const lac_weight *weight, lac_weight_info *info);
/* The bytes of one part; absent ones give NULL and 0. */
LAC_API lac_status lac_weight_get_part(const lac_weight *weight, lac_part part, lac_span *out);
/* Makes a weight of bytes from elsewhere, which are copied and validated in full. Of `info` it reads pattern, n, k,
 * n_out, k_in (0: same as n, k), dtype and encoding. `parts` is indexed by lac_part. */
LAC_API lac_status lac_weight_from_parts(const lac_weight_info *info, const lac_span parts[LAC_PART_COUNT], lac_weight **out);
/* The bytes each part will have, from pattern, n, k, dtype, encoding and has_*_perm of `info`; free distributions are
 * taken to be full. Fills kept, value_bytes, index_bytes and dense_bytes too; `bytes` may be NULL. */
LAC_API lac_status lac_weight_measure(lac_weight_info *info, uint64_t bytes[LAC_PART_COUNT]);

typedef enum lac_axis { LAC_AXIS_N = 0, LAC_AXIS_K = 1 } lac_axis;

/* Rows or columns [begin, end) as a weight of their own, cut from the compressed form. Along n both ends must lie on a
 * row group's boundary, along k on a group's (free distributions: a unit's), or at the end of the matrix. With a
 * permutation the shard keeps the numbers of the whole: its Y (X) stays n_out (k_in) wide, and it writes (reads)
 * only its own. */
LAC_API lac_status lac_weight_shard(const lac_weight *weight, lac_axis axis, int64_t begin, int64_t end, lac_weight **out);
/* Another holder of the same weight; each holder frees it once. */
LAC_API lac_weight *lac_weight_retain(const lac_weight *weight);
LAC_API void lac_weight_free(lac_weight *weight);

/* One weight from or to a container file (below); `name` may be NULL on load when the file holds just one. */
LAC_API lac_status lac_weight_load(const char *path, const char *name, lac_weight **out);
LAC_API lac_status lac_weight_save(const lac_weight *weight, const char *path, const char *name);

/* ---------------------------------------------------------------- files */

typedef struct lac_file lac_file; /* tensors in a file or a set of files, memory-mapped and validated, read-only */

typedef enum lac_file_format {
    LAC_FILE_FORMAT_SAFETENSORS = 1, /* one file, a folder, or the index.json of several; with or without weights */
    LAC_FILE_FORMAT_NPY = 2,         /* one tensor, named "array"                                                 */
    LAC_FILE_FORMAT_SMTX = 3         /* one mask, named "mask"                                                    */
} lac_file_format;

typedef struct lac_file_info {
    size_t size;
    lac_file_format format;
    int64_t tensors; /* dense ones; the parts of weights are not counted */
    int64_t weights; /* compressed ones                                  */
    int64_t masks;
    int64_t files; /* how many files it spans                          */
    uint64_t bytes;
} lac_file_info;

#define LAC_MAX_RANK 8

typedef struct lac_tensor_info {
    size_t size;
    const char *name;
    const char *type; /* as the file calls it: "F32", "BF16", "I64", ...                       */
    lac_dtype dtype;  /* NONE when the type is none of Lacuna's                                */
    int32_t rank;     /* 0 to LAC_MAX_RANK                                                     */
    int64_t shape[LAC_MAX_RANK];
    uint64_t bytes;
    const void *data; /* in the mapped file; not aligned in general; valid until the file is closed */
    const char *path; /* which file it lies in                                                 */
} lac_tensor_info;

/* Opens and validates by content, not by name. The file must not shrink while it is open. */
LAC_API lac_status lac_file_open(const char *path, lac_file **out);
LAC_API lac_status lac_file_get_info(const lac_file *file, lac_file_info *info);
LAC_API lac_status lac_file_get_tensor(const lac_file *file, int64_t index, lac_tensor_info *info);
LAC_API lac_status lac_file_find_tensor(const lac_file *file, const char *name, lac_tensor_info *info);
/* Copies a tensor of rank 2 (rank 1: one row) into `out`, converting the dtype. */
LAC_API lac_status lac_file_read_matrix(const lac_file *file, const char *name, const lac_matrix *out);
/* What a weight is, without loading it; `name` lives as long as the file. */
LAC_API lac_status lac_file_get_weight(const lac_file *file, int64_t index, const char **name, lac_weight_info *info);
LAC_API lac_status lac_file_load_weight(const lac_file *file, const char *name, lac_weight **out);
LAC_API lac_status lac_file_load_mask(const lac_file *file, lac_mask **out);
/* The metadata of a safetensors file by position: NOT_FOUND past the end. */
LAC_API lac_status lac_file_get_metadata(const lac_file *file, int64_t index, const char **key, const char **value);
LAC_API void lac_file_close(lac_file *file);

/* Writes a safetensors file in one pass: declare everything, then write it in the order of declaration. Nothing
 * appears under `path` before lac_writer_commit, which renames a finished temporary file beside it; freeing an
 * uncommitted writer removes that. A file that is replaced hands its permissions on, and where `path` is a link to a
 * file, that file is replaced and the link stays. */
typedef struct lac_writer lac_writer;

LAC_API lac_status lac_writer_open(const char *path, lac_writer **out);
LAC_API lac_status lac_writer_set_metadata(lac_writer *writer, const char *key, const char *value);
/* Of `info` it reads name, type (or dtype when type is NULL), rank and shape. */
LAC_API lac_status lac_writer_declare_tensor(lac_writer *writer, const lac_tensor_info *info);
/* A weight of the sizes that lac_weight_measure gives for `info`, or of the very sizes of `weight` when given. */
LAC_API lac_status lac_writer_declare_weight(lac_writer *writer, const char *name, const lac_weight_info *info,
                                             const lac_weight *weight);
LAC_API lac_status lac_writer_write_tensor(lac_writer *writer, const char *name, const void *data, uint64_t bytes);
LAC_API lac_status lac_writer_write_weight(lac_writer *writer, const char *name, const lac_weight *weight);
LAC_API lac_status lac_writer_commit(lac_writer *writer);
LAC_API void lac_writer_free(lac_writer *writer);

/* One matrix as .npy, one mask as .smtx; atomic in the same way. */
LAC_API lac_status lac_matrix_save_npy(const lac_matrix *matrix, const char *path);
LAC_API lac_status lac_mask_save_smtx(const lac_mask *mask, const char *path);

/* ---------------------------------------------------------------- checkpoints */

typedef struct lac_layer_report {
    size_t size;
    const char *name;
    int32_t pruned;     /* 0: copied as it is                                             */
    const char *reason; /* why not; "" when pruned                                        */
    int64_t n, k;       /* 0 when not a matrix                                            */
    uint64_t dense_bytes, stored_bytes;
    double energy_kept; /* share of the sum of squares; 1 when copied                     */
    double seconds;
    int64_t index, total; /* this is tensor `index` of `total`                            */
    uint64_t bytes_done, bytes_total;
    double output_error; /* what the outputs lose over the calibration, as a share; negative when there is none */
    int32_t resumed;     /* 1: an earlier run had finished it; seconds are that run's                            */
    lac_pattern pattern; /* when pruned                                                                          */
    double loss_rise;    /* FISHER: what the loss is taken to rise by; negative when there are no gradients       */
    uint32_t moved;      /* LAC_PERMUTE_*: ROWS were moved because it is a producer, COLUMNS because it is a consumer */
} lac_layer_report;

/* Called after each tensor; a nonzero return stops with CANCELLED and leaves no file behind, unless the run can be resumed. */
typedef int (*lac_layer_fn)(void *user, const lac_layer_report *report);

/* What a run that is cut off (cancelled, killed, out of memory or disk) leaves for the next one. */
typedef enum lac_resume {
    LAC_RESUME_NO = 0, /* nothing                                                                                */
    LAC_RESUME_YES =
        1, /* "<out>.partial" and "<out>.journal": the next run checks them and goes on from there. It is refused when
                              the options or the input are not the same                                              */
    LAC_RESUME_RESTART = 2 /* the same, but what an earlier run left is forgotten first                              */
} lac_resume;

/* Which pattern each layer of a checkpoint gets, and what that costs: see lac_checkpoint_allocate. */
typedef struct lac_allocation lac_allocation;

typedef struct lac_checkpoint_options {
    size_t size;
    const lac_pattern *pattern; /* must be said, unless there is an allocation                                    */
    const char *const *include; /* shell globs (* ? [a-z]) on tensor names; none: every floating 2-D tensor       */
    size_t include_count;
    const char *const *exclude; /* applied after include                                                          */
    size_t exclude_count;
    const lac_prune_options *prune;       /* NULL: defaults. No calibration: layers have one each, below                */
    const lac_compress_options *compress; /* NULL: defaults                                                       */
    int32_t keep_dense;                   /* 1: write pruned tensors dense, with zeros, under their own names               */
    lac_layer_fn on_layer;
    void *user;
    const char
        *calibration; /* WANDA, OBS: a file with a tensor [..., k] of inputs for each matrix that is pruned: "a.b.input" for
                                "a.b.weight", "c.input" for any other "c", or the only tensor of an .npy; or "a.b.moments" [k, k], the sum of x x^T, with
                                "a.b.samples", how many (F64, [1]). FISHER: "a.b.gradient" [samples, n, k], named likewise */
    lac_resume resume;
    const lac_allocation
        *allocation; /* instead of a pattern: each layer its own; those that stay dense are copied. Permutations are
                                         looked for where the layer's pattern knows them                                  */
    const char *const
        *producers; /* "CONSUMER=PRODUCER[,PRODUCER...]", names of tensors: the inputs of a consumer that is pruned may
                             stand in another order, as with LAC_PERMUTE_COLUMNS, but the rows of its producers and their biases
                             ("a.bias" of "a.weight") are moved instead of storing that order. A * stands for anything, the same in
                             the consumer and its producers. Consumers that share a producer share one order, the first decides; one
                             that is not pruned follows. What lies between them must treat all channels alike: that, and that
                             nothing else reads the producers' outputs, is the caller's promise                         */
    size_t producer_count;
} lac_checkpoint_options;

/* Prunes a checkpoint into a container, one tensor at a time, while the one before is written; what it does not prune is copied. */
LAC_API lac_status lac_checkpoint_prune(const char *in, const char *out, const lac_checkpoint_options *options);

/* ---------------------------------------------------------------- devices */

typedef enum lac_device_kind { LAC_DEVICE_KIND_CPU = 1, LAC_DEVICE_KIND_CUDA = 2 } lac_device_kind;

typedef struct lac_device_info {
    size_t size;
    lac_device_kind kind;
    char name[32];        /* what lac_device_open takes: "cpu", "cuda:0"       */
    char model[128];      /* as the maker calls it                             */
    int32_t available;    /* 0: seen but not usable, see note                  */
    char note[256];       /* what was found where, or what is missing          */
    int32_t cores;        /* that this process may use; multiprocessors of a GPU */
    char vector_unit[32]; /* "scalar", "avx2", "avx512", "neon"; "sm_90"       */
    uint64_t memory_bytes;
    uint64_t l1_bytes, l2_bytes, l3_bytes; /* data caches; 0: unknown          */
} lac_device_info;

/* The i-th device of this machine, usable or not; NOT_FOUND past the end. */
LAC_API lac_status lac_device_probe(size_t index, lac_device_info *info);
/* "auto" (the fastest usable one), "cpu", "cuda:0". The first CPU that a process opens is measured for the performance
 * model, in 15 to 20 ms: arithmetic, caches and memory, the latter by as many threads as it has cores, all of them gone
 * when this returns. The environment variable LAC_CPU_RATES replaces that by fixed numbers (docs/model.md). A GPU that is not here, "h200" and the like or an architecture such as "sm_90a", opens as well: for plans that predict
 * only. */
LAC_API lac_status lac_device_open(const char *name, lac_device **out);
LAC_API lac_status lac_device_get_info(const lac_device *device, lac_device_info *info);
LAC_API void lac_device_close(lac_device *device);

/* Memory that the device's kernels read and write, for callers without a CUDA runtime of their own: aligned to 64 bytes
 * or more, not cleared; plain memory on a CPU. Release it before the device is closed for good; NULL is fine. */
LAC_API lac_status lac_device_allocate(const lac_device *device, uint64_t bytes, void **out);
LAC_API void lac_device_release(const lac_device *device, void *block);
/* Copies between the host's memory and the device's, after all that was put on the default stream (NULL); returns when
 * the copy is done. Work on other streams has to be waited for first. */
LAC_API lac_status lac_device_upload(const lac_device *device, void *to, const void *from, uint64_t bytes);
LAC_API lac_status lac_device_download(const lac_device *device, void *to, const void *from, uint64_t bytes);
/* Waits until everything that was put on the device is done. A kernel that failed says so here. */
LAC_API lac_status lac_device_synchronize(const lac_device *device);

/* What is looked for when Lacuna runs, and may be missing: a driver, a compiler, a place for compiled kernels. */
typedef struct lac_component_info {
    size_t size;
    char name[32];     /* "libcuda", "libnvrtc", "kernel cache", "libcublas", ... */
    int32_t available; /* 0: not found or not usable, see note                    */
    char version[32];  /* "" when it has none                                     */
    char path[512];    /* where it was found                                      */
    char note[256];    /* what is missing, where it was looked for, what it means */
} lac_component_info;

/* The i-th component; NOT_FOUND past the end. */
LAC_API lac_status lac_component_probe(size_t index, lac_component_info *info);

/* ---------------------------------------------------------------- plans */

typedef struct lac_plan lac_plan; /* one chosen, prepared kernel for (device, weight, m, options) */

typedef enum lac_activation {
    LAC_ACTIVATION_NONE = 0,
    LAC_ACTIVATION_RELU = 1,
    LAC_ACTIVATION_GELU_ERF = 2,
    LAC_ACTIVATION_GELU_TANH = 3,
    LAC_ACTIVATION_SILU = 4
} lac_activation;

/* How fp32 operands are multiplied; 16-bit ones always accumulate in fp32. */
typedef enum lac_precision {
    LAC_PRECISION_DEFAULT = 0, /* STRICT on a CPU, FAST on a GPU with tensor cores                 */
    LAC_PRECISION_STRICT = 1,  /* every product and sum in IEEE fp32                               */
    LAC_PRECISION_FAST = 2,    /* split operands on tensor cores, as accurate as fp32              */
    LAC_PRECISION_TF32 = 3     /* operands rounded to tf32                                         */
} lac_precision;

typedef struct lac_plan_options {
    size_t size;
    lac_layout x_layout, y_layout; /* C has Y's                                                       */
    lac_dtype x_dtype;             /* NONE: the weight's                                              */
    lac_dtype y_dtype;             /* NONE: x_dtype                                                   */
    lac_dtype bias_dtype;          /* NONE: y_dtype                                                   */
    lac_dtype c_dtype;             /* NONE: y_dtype                                                   */
    lac_precision precision;
    int32_t has_bias;
    lac_activation activation;
    int32_t has_residual; /* + beta * C                                                      */
    const char *kernel;   /* forces a kernel by its name; NULL: the planner's pick           */
    int32_t threads;      /* CPU; 0: every core that the process may use. Up to 4096, of which 256 or the cores are used */
    int32_t measure;      /* 1: time the candidates instead of trusting the model; not where `kernel` names the only one */
    int32_t predict_only; /* 1: for get_info and explain alone: nothing is compiled, uploaded or prepared, and execute
                             refuses it                                                       */
    int32_t no_dense;     /* 1: no kernel that ignores the sparsity, and so no copy of W with its zeros in memory, be it
                             slower                                                           */
    int32_t no_timing;    /* 1: nothing is timed, and nothing is used that a plan before this one has timed. Otherwise, on a
                             GPU, where the model holds several kernels for nearly as fast or dense for not far behind, and
                             when the vendor's dense library is picked, its algorithms, these are timed once for a problem,
                             in some tens of milliseconds, and the fastest is remembered in the cache's folder           */
} lac_plan_options;

typedef struct lac_plan_info {
    size_t size;
    const char *kernel;       /* the registry's name for it                          */
    int32_t is_dense;         /* 1: a kernel that ignores the sparsity               */
    int32_t forced;           /* 1: by options.kernel                                */
    double predicted_seconds; /* by the performance model                            */
    const char *bound;        /* what the model says limits it: a level's name       */
    int32_t candidates;       /* how many kernels applied, less those that proved not to be had */
    int64_t m, n, k;          /* n and k as the widths of Y and X                    */
    size_t workspace_bytes;   /* that execute needs; it needs no clearing            */
    double ceiling_seconds;   /* what the resource that it needs longest would take alone: no call is faster */
    uint64_t dense_bytes;     /* of W with its zeros, which a dense kernel keeps; 0  */
    const char *note;         /* faster kernels, by the model, that could not be had, and why; or who does its products; "" */
    int32_t rivals;           /* other candidates between which timing decides, not the model */
    double measured_seconds;  /* of the kernel, where it was timed for this plan or one before it; 0 */
} lac_plan_info;

/* One level of the performance model: a resource that a call uses, and what it asks of it. */
typedef struct lac_level_info {
    size_t size;
    const char *name;   /* "memory", "l3", "l2", "loads", "fma", "packing"            */
    const char *unit;   /* of amount: "bytes", "vector loads", "vector FMAs", ...     */
    double amount;      /* that one call asks for                                     */
    double rate;        /* that the device gives a second, by all threads of the plan; 0: a GPU's waves and latency have none */
    double seconds;     /* amount / rate; without a rate the model's own                                                      */
    int32_t is_bound;   /* 1: the level that takes longest                            */
    const char *remedy; /* what would make it take less, as a sentence                */
} lac_level_info;

/* A kernel that cannot be prepared for a reason of its own is passed over, and the choice is made anew without it: the compiler refuses its
 * program, or there is none and the cache lacks it, or the device's memory does not hold its copy of W. A warning in the log and info.note
 * say so; what is left may be dense, unless options->no_dense. Not passed over, but a failure: a kernel that options->kernel forces; no
 * memory of the host's; a device that is lost. When none can be prepared, the failure is that of the cheapest. */
LAC_API lac_status lac_plan_create(lac_device *device, const lac_weight *weight, int64_t m, const lac_plan_options *options,
                                   lac_plan **out);
LAC_API lac_status lac_plan_get_info(const lac_plan *plan, lac_plan_info *info);
/* The levels behind predicted_seconds, from memory inwards; NOT_FOUND past the end. The oracle's kernel has none. */
LAC_API lac_status lac_plan_explain(const lac_plan *plan, size_t index, lac_level_info *info);

/* Pointers are in the device's memory and need only their element's alignment; a leading dimension of 0 means no
 * padding. X and Y must not overlap; C may be Y itself when both have one dtype and one leading dimension. */
typedef struct lac_execute_args {
    size_t size;
    const void *x; /* [m,k] token-major, [k,m] feature-major                        */
    int64_t ldx;
    void *y; /* [m,n] token-major, [n,m] feature-major                        */
    int64_t ldy;
    const void *bias; /* [n]; needed exactly when the plan has a bias                  */
    const void *c;    /* as y; needed exactly when the plan has a residual             */
    int64_t ldc;
    const float *alpha; /* NULL: 1. Host memory, read before the call returns            */
    const float *beta;  /* NULL: 1 with a residual; refused without. When *beta is 0, C is not read, and may be NULL */
    void *stream;       /* GPU: a CUstream; CPU: NULL                                    */
    void *workspace;    /* plan_info.workspace_bytes, aligned to 64; NULL when that is 0 */
    size_t workspace_bytes;
} lac_execute_args;

/* Allocates nothing. The same plan and inputs give the same bits every time, whatever the number of threads; only the sign and the
 * payload of a NaN may be others with another number of threads. */
LAC_API lac_status lac_plan_execute(const lac_plan *plan, const lac_execute_args *args);

/* The oracle: the same operation in double by obvious loops, on host pointers. y[i*ld + j] is token i, output j,
 * whatever the plan's layout. bound (may be NULL) gets, element by element, how far the plan's result may be from y:
 * its dtypes, its precision and the number of products considered. Outputs that a shard does not own are left alone.
 * Reads args' x, bias, c, their leading dimensions, alpha and beta. */
LAC_API lac_status lac_plan_reference(const lac_plan *plan, const lac_execute_args *args, double *y, double *bound, int64_t ld);
LAC_API void lac_plan_free(lac_plan *plan);

/* ---------------------------------------------------------------- patterns by budget */

/* What a choice of patterns has to keep to. */
typedef enum lac_budget {
    LAC_BUDGET_SPEEDUP = 1, /* all layers together take, by the performance model, at most 1 / amount of what they take dense */
    LAC_BUDGET_DENSITY = 2  /* at most this share of all weights stays                                                       */
} lac_budget;

typedef struct lac_allocate_options {
    size_t size;
    const lac_pattern *patterns; /* [pattern_count] that each layer may have; staying dense is always a choice           */
    size_t pattern_count;
    lac_budget budget;
    double amount;
    lac_device *device; /* whose kernels the times are predicted for, a described one ("h200") will do. SPEEDUP needs it */
    int64_t m;          /* tokens; 0: 1                                                                                  */
    const lac_plan_options *plan; /* layouts, dtypes, precision, epilogue, threads. NULL: defaults                       */
} lac_allocate_options;

/* One layer, under one pattern or dense. */
typedef struct lac_choice_info {
    size_t size;
    const char *name; /* of the layer's weight                                                                       */
    int64_t n, k;
    int32_t pruned;      /* 0: dense                                                                                 */
    lac_pattern pattern; /* when pruned                                                                              */
    double loss; /* what pruning it so loses, as the method sees it: WANDA and OBS the share of the outputs' energy, FISHER the
                            rise of the loss, MAGNITUDE the share of the weights' energy                             */
    double density; /* share of the weights that stay                                                           */
    double seconds; /* predicted; negative without a device                                                     */
    double dense_seconds;
} lac_choice_info;

typedef struct lac_allocation_info {
    size_t size;
    int64_t layers, pruned;
    double loss;       /* the sum over the layers                          */
    double loss_bound; /* no choice of these patterns within the budget loses less; equal to loss where the search was exact */
    double density;    /* of all layers                                    */
    double seconds, dense_seconds; /* sums; negative without a device         */
} lac_allocation_info;

/* Prunes each matrix that `checkpoint` selects to each pattern, one at a time, and writes nothing: what that loses, by the method and the
 * calibration of `checkpoint`, and how long the planner's kernel takes. Then chooses the patterns that lose least in all within the budget;
 * layers that do not pay stay dense. Of `checkpoint` pattern, keep_dense, resume and allocation are not used; on_layer is called
 * after each layer. INVALID_ARGUMENT, with the most that can be had, when no choice keeps to the budget. */
LAC_API lac_status lac_checkpoint_allocate(const char *in, const lac_checkpoint_options *checkpoint,
                                           const lac_allocate_options *options, lac_allocation **out);
LAC_API lac_status lac_allocation_get_info(const lac_allocation *allocation, lac_allocation_info *info);
/* What was chosen for the i-th layer; NOT_FOUND past the end. */
LAC_API lac_status lac_allocation_get_layer(const lac_allocation *allocation, int64_t index, lac_choice_info *info);
/* What the i-th layer could have been: dense, then pattern after pattern; NOT_FOUND past the end of either. */
LAC_API lac_status lac_allocation_get_option(const lac_allocation *allocation, int64_t index, int64_t option,
                                             lac_choice_info *info);
LAC_API void lac_allocation_free(lac_allocation *allocation);

/* ---------------------------------------------------------------- kernels */

typedef struct lac_kernel_info {
    size_t size;
    const char *name;
    lac_device_kind device;
    int32_t is_dense;
    const char *summary;    /* one line: the dataflow                                    */
    uint32_t families;      /* bit 1 << LAC_FAMILY_x                                     */
    uint32_t weight_dtypes; /* bit 1 << LAC_DTYPE_x                                      */
    uint32_t x_dtypes;
    uint32_t y_dtypes;
} lac_kernel_info;

/* The i-th kernel of the registry; NOT_FOUND past the end. */
LAC_API lac_status lac_kernel_probe(size_t index, lac_kernel_info *info);

/* A GPU's kernels are compiled for the exact problem when a plan is made, and kept in a cache on disk. That cache can be
 * filled ahead, on a machine without a GPU: one program compiled, or found to be there. */
typedef struct lac_compile_report {
    size_t size;
    const char *kernel;   /* the registry's name; "timing" for what plans time kernels with */
    const char *arch;     /* "sm_90a"                                                       */
    const char *pattern;  /* its text                                                       */
    int64_t m, n, k;      /* of the first problem that wants it                             */
    const char *entry;    /* the function in it                                             */
    int32_t found;        /* 1: it lay in the cache already                                 */
    int32_t registers;    /* a thread                                                       */
    int32_t spill_bytes;  /* a thread: what did not fit them                                */
    int32_t shared_bytes; /* a block, of fixed size; what is asked for at the launch is more */
    uint64_t image_bytes; /* compiled                                                       */
    double seconds;       /* that it took                                                   */
    int64_t index, total; /* this is program `index` of `total`                             */
    int32_t stack_bytes;  /* a thread: arrays that found no registers, and what is spilled  */
    int32_t serialized;   /* 1: its matrix products wait for each other, which the compiler says; slow */
} lac_compile_report;

/* Called after each program; a nonzero return stops with CANCELLED. */
typedef int (*lac_compile_fn)(void *user, const lac_compile_report *report);

typedef struct lac_kernels_compile_options {
    size_t size;
    const char *const *archs; /* "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"; must be said   */
    size_t arch_count;
    const lac_pattern *patterns; /* must be said                                                                   */
    size_t pattern_count;
    int64_t n, k;     /* of the weights; 0: 4096                                                                   */
    const int64_t *m; /* tokens; none: 1, 8, 16, 64, 256, 4096                                                     */
    size_t m_count;
    lac_dtype dtype;              /* of the weights; NONE: F32                                                            */
    const lac_plan_options *plan; /* layouts, dtypes, precision, epilogue; kernel: only that one. NULL: defaults   */
    const char *folder;           /* of the cache; made when missing. NULL: where plans look, see docs/cuda.md            */
    lac_compile_fn on_program;
    void *user;
} lac_kernels_compile_options;

/* Compiles every program of every kernel that applies. Needs NVRTC and no GPU. */
LAC_API lac_status lac_kernels_compile(const lac_kernels_compile_options *options);

#ifdef __cplusplus
}
#endif
#endif /* LACUNA_H */
