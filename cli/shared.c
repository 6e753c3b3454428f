/* shared.c - the choices of options that several subcommands have; see shared.h. */
#include "shared.h"

const cli_choice cli_progress_choices[] = {{"auto", 0}, {"always", 1}, {"never", 2}, {NULL, 0}};
const cli_choice cli_encoding_choices[] = {{"auto", LAC_INDEX_ENCODING_AUTO},       {"implicit", LAC_INDEX_ENCODING_IMPLICIT},
                                           {"packed", LAC_INDEX_ENCODING_PACKED},   {"bitmask", LAC_INDEX_ENCODING_BITMASK},
                                           {"columns", LAC_INDEX_ENCODING_COLUMNS}, {NULL, 0}};
const cli_choice cli_weight_dtype_choices[] = {
    {"f32", LAC_DTYPE_F32}, {"f16", LAC_DTYPE_F16}, {"bf16", LAC_DTYPE_BF16}, {NULL, 0}};
const cli_choice cli_any_dtype_choices[] = {
    {"f32", LAC_DTYPE_F32}, {"f16", LAC_DTYPE_F16}, {"bf16", LAC_DTYPE_BF16}, {"f64", LAC_DTYPE_F64}, {NULL, 0}};
const cli_choice cli_layout_choices[] = {{"token", LAC_LAYOUT_TOKEN_MAJOR}, {"feature", LAC_LAYOUT_FEATURE_MAJOR}, {NULL, 0}};
const cli_choice cli_precision_choices[] = {{"default", LAC_PRECISION_DEFAULT},
                                            {"strict", LAC_PRECISION_STRICT},
                                            {"fast", LAC_PRECISION_FAST},
                                            {"tf32", LAC_PRECISION_TF32},
                                            {NULL, 0}};
const cli_choice cli_activation_choices[] = {{"none", LAC_ACTIVATION_NONE},     {"relu", LAC_ACTIVATION_RELU},
                                             {"gelu", LAC_ACTIVATION_GELU_ERF}, {"gelu-tanh", LAC_ACTIVATION_GELU_TANH},
                                             {"silu", LAC_ACTIVATION_SILU},     {NULL, 0}};
