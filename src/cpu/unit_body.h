/* unit_body.h - all the inner loops of one vector unit and the table that names them. unit_<name>.c includes this under
 * the compiler flags of its unit, and nothing else does. */
#include "cpu/broadcast_body.h"
#include "cpu/expand_body.h"
#include "cpu/finish_body.h"
#include "cpu/panel_body.h"
#include "cpu/peak_body.h"
#include "cpu/permute_body.h"
#include "cpu/stream_body.h"

#define LAC_UNIT_TEXT_OF(name)  #name
#define LAC_UNIT_TEXT(name)     LAC_UNIT_TEXT_OF(name)
#define LAC_UNIT_TABLE_OF(name) lac_cpu_unit_##name
#define LAC_UNIT_TABLE(name)    LAC_UNIT_TABLE_OF(name)

const lac_cpu_unit LAC_UNIT_TABLE(LAC_UNIT_NAME) = {
    .name = LAC_UNIT_TEXT(LAC_UNIT_NAME),
    .lanes = LAC_LANES,
    .is_supported = is_supported,
    .broadcast_tiles = lac_broadcast_tiles,
    .broadcast_vectors = LAC_BROADCAST_VECTORS,
    .broadcast = lac_broadcast,
    .stream_vectors = {LAC_STREAM_VECTORS_2, LAC_STREAM_VECTORS_4},
    .stream = lac_stream,
    .closest = lac_stream_closest,
    .expand = lac_expand_any,
    .permute_strip = LAC_PERMUTE_STRIP,
    .permute_bits = LAC_PERMUTE_BITS,
    .permute = lac_permute,
    .turn = lac_turn_any,
    .finish = lac_finish,
    .peak = lac_peak,
};
