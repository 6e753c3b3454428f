/* seeds.c - writes the seed corpora of the fuzz targets: small valid files of every kind, and a few that are nearly so.
 * Run by hand when a format changes: fuzz_seeds tests/fuzz/corpus. The same every time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lacuna.h"

static const char *root;

static void require(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_seeds: %s: %s\n", what, lac_last_error());
    exit(1);
}

/* In one of two static buffers. */
static const char *path_of(const char *target, const char *name)
{
    static char paths[2][4096];
    static int turn;
    turn ^= 1;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s/%s", root, target, name);
    return paths[turn];
}

static void write_bytes(const char *target, const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(path_of(target, name), "wb");
    require(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0, name);
}

static void write_text(const char *target, const char *name, const char *text)
{
    write_bytes(target, name, text, strlen(text));
}

/* A header and `bytes` of data, whose values count up. */
static void write_safetensors(const char *name, const char *header, size_t bytes)
{
    unsigned char file[4096] = {0};
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < bytes; i++) file[8 + length + i] = (unsigned char)(i * 7);
    write_bytes("safetensors", name, file, 8 + length + bytes);
}

static void make_safetensors(void)
{
    write_safetensors("empty", "{}", 0);
    write_safetensors("one", "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24);
    write_safetensors(
        "metadata", "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]}}  ",
        6);
    write_safetensors(
        "types",
        "{\"a\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"I64\",\"shape\":[],"
        "\"data_offsets\":[4,12]},\"c\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[12,13]},\"d\":{\"dtype\":"
        "\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[13,15]},\"e\":{\"dtype\":\"F8_E5M2\",\"shape\":[2],\"data_offsets\":"
        "[15,17]},\"f\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[17,25]},\"g\":{\"dtype\":\"U16\",\"shape\":[1],"
        "\"data_offsets\":[25,27]},\"h\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[27,28]}}",
        28);
    write_safetensors("zero_length",
                      "{\"z\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[0,0]},\"w\":{\"dtype\":\"U8\",\"shape\":[3],"
                      "\"data_offsets\":[0,3]}}",
                      3);
    write_safetensors("overlap",
                      "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],"
                      "\"data_offsets\":[2,5]}}",
                      5);
    write_safetensors("overflow", "{\"a\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0);
}

static void make_weight(const char *name, const char *pattern_text, int64_t n, int64_t k, lac_dtype dtype,
                        lac_index_encoding encoding)
{
    float values[64 * 64];
    uint32_t state = 1;
    for (int64_t i = 0; i < n * k; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)((int)(state >> 24) - 128) / 16.0f;
    }
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    lac_compress_options options = {.size = sizeof options, .dtype = dtype, .encoding = encoding};
    require(lac_pattern_parse(pattern_text, &pattern) == LAC_STATUS_OK, pattern_text);
    require(lac_prune(&dense, &pattern, NULL, &mask) == LAC_STATUS_OK, name);
    require(lac_weight_compress(&dense, mask, &options, &weight) == LAC_STATUS_OK, name);
    require(lac_weight_save(weight, path_of("container", name), "w") == LAC_STATUS_OK, name);
    lac_weight_free(weight);
    lac_mask_free(mask);
}

static void make_containers(void)
{
    make_weight("element_packed", "2:4", 3, 10, LAC_DTYPE_F32, LAC_INDEX_ENCODING_PACKED);
    make_weight("element_bitmask", "3:5", 3, 11, LAC_DTYPE_F16, LAC_INDEX_ENCODING_BITMASK);
    make_weight("element_implicit", "2:2", 2, 5, LAC_DTYPE_BF16, LAC_INDEX_ENCODING_AUTO);
    make_weight("element_free", "25%", 3, 9, LAC_DTYPE_F32, LAC_INDEX_ENCODING_AUTO);
    make_weight("vector", "vw4:2:8", 6, 18, LAC_DTYPE_F16, LAC_INDEX_ENCODING_PACKED);
    make_weight("vector_free", "vw4:50%", 6, 6, LAC_DTYPE_F32, LAC_INDEX_ENCODING_AUTO);
    make_weight("block", "bw2x3:1:3", 5, 20, LAC_DTYPE_BF16, LAC_INDEX_ENCODING_BITMASK);
    make_weight("vnm", "4:2:8", 6, 19, LAC_DTYPE_F16, LAC_INDEX_ENCODING_PACKED);
    make_weight("vnm_four", "4:4:6", 4, 8, LAC_DTYPE_F32, LAC_INDEX_ENCODING_BITMASK);
    make_weight("shuffled", "shfl4:40%", 9, 8, LAC_DTYPE_F16, LAC_INDEX_ENCODING_AUTO);
    make_weight("empty", "2:4", 0, 8, LAC_DTYPE_F32, LAC_INDEX_ENCODING_AUTO);
}

static void write_npy(const char *name, int version, const char *header, size_t bytes)
{
    unsigned char file[1024] = "\x93NUMPY";
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    file[6] = (unsigned char)version;
    for (size_t i = 8; i < start; i++) file[i] = (unsigned char)(length >> 8 * (i - 8));
    memcpy(file + start, header, length);
    for (size_t i = 0; i < bytes; i++) file[start + length + i] = (unsigned char)(i * 5);
    write_bytes("npy", name, file, start + length + bytes);
}

static void make_npy(void)
{
    write_npy("c_order", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
    write_npy("fortran", 1, "{'descr': '<f2', 'fortran_order': True, 'shape': (2, 3, 2), }\n", 24);
    write_npy("version2", 2, "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }\n", 5);
    write_npy("version3", 3, "{\"descr\": \"<i8\", \"fortran_order\": False, \"shape\": ()}\n", 8);
    write_npy("double", 1, "{'shape': (1, 2), 'descr': '<f8', 'fortran_order': True}", 16);
    write_npy("big_endian", 1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }\n", 4);
}

static void make_smtx(void)
{
    write_text("smtx", "small", "3, 4, 5\n0 2 2 5\n0 3 1 2 3\n");
    write_text("smtx", "empty", "0, 0, 0\n0\n\n");
    write_text("smtx", "no_nonzeros", "2, 7, 0\n0 0 0\n");
    write_text("smtx", "wide", "1, 70, 3\n0 3\n0 64 69\n");
    write_text("smtx", "gigantic", "1, 2147483647, 1\n0 1\n2147483646\n");
    write_text("smtx", "descending", "1, 4, 2\n0 2\n3 1\n");
}

static void make_patterns(void)
{
    static const char *const texts[] = {"2:4",         "25%",    "1:1",   "255:256",    "vw32:8:32", "vw32:25%", "bw4x4:2:8",
                                        "bw4x4:12.5%", "64:2:8", "1:4:4", "shfl64:25%", "0.1%",      "100%",     "33.333%"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "%02zu", i);
        write_text("pattern", name, texts[i]);
    }
}

int main(int argc, char **argv)
{
    static const char *const targets[] = {"safetensors", "container", "npy", "smtx", "pattern"};
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
        return 2;
    }
    root = argv[1];
    mkdir(root, 0777);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) mkdir(path_of(targets[i], ""), 0777);
    make_safetensors();
    make_containers();
    make_npy();
    make_smtx();
    make_patterns();
    return 0;
}
