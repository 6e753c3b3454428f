/* pattern.c - patterns as text, as numbers, and on a matrix of given size. Called by everything that prunes, stores or
 * multiplies; allocates nothing and does not depend on the locale. */
#include "core/pattern.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/status.h"

enum { MAX_DECIMALS = 12 }; /* of a density in percent: 100 * 10^12 is exact in a double */

static const double powers_of_ten[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};

/* ---- text to pattern */

typedef struct reader {
    const char *text;
    const char *at;
} reader;

static lac_status syntax_error(const reader *r, const char *expected)
{
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                    "pattern is '%.60s': expected %s at position %td; patterns look like 2:4, 25%%, vw32:8:32, bw4x4:2:8, "
                    "64:2:8 or shfl64:25%%",
                    r->text, expected, r->at - r->text);
}

static bool take(reader *r, const char *literal)
{
    size_t length = strlen(literal);
    if (strncmp(r->at, literal, length)) return false;
    r->at += length;
    return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static lac_status take_integer(reader *r, int32_t *out)
{
    if (!is_digit(*r->at)) return syntax_error(r, "a whole number");
    int64_t value = 0;
    for (; is_digit(*r->at); ++r->at) {
        value = value * 10 + (*r->at - '0');
        if (value > INT32_MAX)
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern is '%.60s': the number at position %td is over 2147483647",
                            r->text, r->at - r->text);
    }
    *out = (int32_t)value;
    return LAC_STATUS_OK;
}

/* Does a percentage stand here rather than an N:M? */
static bool at_percentage(const reader *r)
{
    const char *p = r->at;
    while (is_digit(*p) || *p == '.') ++p;
    return *p == '%' && p > r->at;
}

/* "12.5%" -> 0.125 by one division of two exact numbers, hence correctly rounded. */
static lac_status take_percentage(reader *r, double *out)
{
    if (!is_digit(*r->at)) return syntax_error(r, "a percentage");
    int64_t digits = 0;
    int decimals = 0;
    bool behind_point = false;
    for (;; ++r->at) {
        if (*r->at == '.' && !behind_point) {
            behind_point = true;
            if (!is_digit(r->at[1])) return syntax_error(r, "a digit behind the point");
            continue;
        }
        if (!is_digit(*r->at)) break;
        if (behind_point && ++decimals > MAX_DECIMALS) return syntax_error(r, "at most 12 decimals");
        digits = digits * 10 + (*r->at - '0');
        if (digits > (int64_t)1e14) return syntax_error(r, "at most 100%");
    }
    if (!take(r, "%")) return syntax_error(r, "'%'");
    if (digits == 0) /* said here: as a pattern, a density of 0 would pass for a forgotten N:M */
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "pattern is '%.60s': its density is 0; it lies above 0 and at most at 100%%", r->text);
    *out = (double)digits / powers_of_ten[decimals + 2];
    return LAC_STATUS_OK;
}

static lac_status take_distribution(reader *r, lac_pattern *p)
{
    if (!take(r, ":")) return syntax_error(r, "':'");
    if (at_percentage(r)) return take_percentage(r, &p->density);
    lac_status status = take_integer(r, &p->n);
    if (status) return status;
    if (!take(r, ":")) return syntax_error(r, "':'");
    return take_integer(r, &p->m);
}

static lac_status take_pattern(reader *r, lac_pattern *p)
{
    lac_status status;
    p->unit_n = p->unit_k = 1;
    if (take(r, "vw") || take(r, "shfl")) {
        p->family = r->text[0] == 'v' ? LAC_FAMILY_VECTOR : LAC_FAMILY_SHUFFLED;
        if ((status = take_integer(r, &p->unit_n))) return status;
        return take_distribution(r, p);
    }
    if (take(r, "bw")) {
        p->family = LAC_FAMILY_BLOCK;
        if ((status = take_integer(r, &p->unit_n))) return status;
        if (!take(r, "x")) return syntax_error(r, "'x'");
        if ((status = take_integer(r, &p->unit_k))) return status;
        return take_distribution(r, p);
    }
    p->family = LAC_FAMILY_ELEMENT;
    if (at_percentage(r)) return take_percentage(r, &p->density);
    if ((status = take_integer(r, &p->n))) return status;
    if (!take(r, ":")) return syntax_error(r, "':'");
    if ((status = take_integer(r, &p->m))) return status;
    if (!take(r, ":")) return LAC_STATUS_OK;
    p->family = LAC_FAMILY_VNM; /* V:N:M after all: what was read is V and N */
    p->unit_n = p->n;
    p->n = p->m;
    return take_integer(r, &p->m);
}

lac_status lac_pattern_parse(const char *text, lac_pattern *out)
{
    if (!text) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "text is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    reader r = {text, text};
    lac_pattern pattern = {0};
    lac_status status = take_pattern(&r, &pattern);
    if (status) return status;
    if (*r.at) return syntax_error(&r, "the end");
    if ((status = lac_pattern_validate(&pattern))) return lac_fail_in(status, "pattern is '%.60s'", text);
    *out = pattern;
    return LAC_STATUS_OK;
}

/* ---- pattern to text */

/* The fewest decimals that give the density back exactly, or -1. */
static int density_decimals(double density, int64_t *digits)
{
    for (int decimals = 0; decimals <= MAX_DECIMALS; ++decimals) {
        double scaled = round(density * powers_of_ten[decimals + 2]);
        if (scaled / powers_of_ten[decimals + 2] == density) return *digits = (int64_t)scaled, decimals;
    }
    return -1;
}

lac_status lac_pattern_format(const lac_pattern *pattern, char *buffer, size_t buffer_size)
{
    lac_status status = lac_pattern_validate(pattern);
    if (status) return status;
    if (!buffer) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "buffer is NULL");

    char unit[32] = "";
    switch (pattern->family) {
    case LAC_FAMILY_ELEMENT:
        break;
    case LAC_FAMILY_VECTOR:
        snprintf(unit, sizeof unit, "vw%" PRId32 ":", pattern->unit_n);
        break;
    case LAC_FAMILY_SHUFFLED:
        snprintf(unit, sizeof unit, "shfl%" PRId32 ":", pattern->unit_n);
        break;
    case LAC_FAMILY_BLOCK:
        snprintf(unit, sizeof unit, "bw%" PRId32 "x%" PRId32 ":", pattern->unit_n, pattern->unit_k);
        break;
    case LAC_FAMILY_VNM:
        snprintf(unit, sizeof unit, "%" PRId32 ":", pattern->unit_n);
        break;
    }
    char text[LAC_PATTERN_TEXT_SIZE];
    if (pattern->m) {
        snprintf(text, sizeof text, "%s%" PRId32 ":%" PRId32, unit, pattern->n, pattern->m);
    } else {
        int64_t digits = 0;
        int decimals = density_decimals(pattern->density, &digits);
        int64_t whole = (int64_t)powers_of_ten[decimals];
        if (decimals)
            snprintf(text, sizeof text, "%s%" PRId64 ".%0*" PRId64 "%%", unit, digits / whole, decimals, digits % whole);
        else
            snprintf(text, sizeof text, "%s%" PRId64 "%%", unit, digits);
    }
    size_t bytes = strlen(text) + 1;
    if (bytes > buffer_size)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "buffer_size is %zu; '%s' needs %zu", buffer_size, text, bytes);
    memcpy(buffer, text, bytes);
    return LAC_STATUS_OK;
}

/* ---- validity */

static lac_status validate_units(const lac_pattern *p)
{
    if (p->unit_n < 1)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: unit_n is %" PRId32 "; it is at least 1", p->unit_n);
    if (p->unit_k < 1)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: unit_k is %" PRId32 "; it is at least 1", p->unit_k);
    if (p->family == LAC_FAMILY_ELEMENT && p->unit_n != 1)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: unit_n is %" PRId32 "; it is 1 for element-wise", p->unit_n);
    if (p->family != LAC_FAMILY_BLOCK && p->unit_k != 1)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: unit_k is %" PRId32 "; it is 1 but for block-wise", p->unit_k);
    return LAC_STATUS_OK;
}

static lac_status validate_free(const lac_pattern *p)
{
    if (p->family == LAC_FAMILY_VNM) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: V:N:M needs N and M; M is 0");
    if (p->n) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: n is %" PRId32 " but m is 0", p->n);
    if (!(p->density > 0 && p->density <= 1)) /* NaN fails too */
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: density is %g; it lies above 0 and at most at 1 (100%%)",
                        p->density);
    int64_t digits;
    if (density_decimals(p->density, &digits) < 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "pattern: density is %.17g; in percent it may have 12 decimals, so that its text reads back the same",
                        p->density);
    return LAC_STATUS_OK;
}

static lac_status validate_n_of_m(const lac_pattern *p)
{
    if (p->family == LAC_FAMILY_SHUFFLED)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "pattern: shuffled rows take a density such as 25%%, not %" PRId32 ":%" PRId32, p->n, p->m);
    if (p->density != 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: density is %g; it is 0 when N:M is given", p->density);
    if (p->m < 1 || p->m > LAC_MAX_GROUP)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: M is %" PRId32 "; it lies in 1 to %d", p->m, LAC_MAX_GROUP);
    if (p->n < 1) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: N is %" PRId32 "; it is at least 1", p->n);
    if (p->n > p->m)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: N is %" PRId32 " but M is %" PRId32 "; N must not exceed M",
                        p->n, p->m);
    if (p->family == LAC_FAMILY_VNM && (p->n > LAC_VNM_SELECTED || p->m < LAC_VNM_SELECTED))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "pattern: V:N:M has N at most 4 and M at least 4; they are %" PRId32 " and %" PRId32, p->n, p->m);
    return LAC_STATUS_OK;
}

lac_status lac_pattern_validate(const lac_pattern *pattern)
{
    if (!pattern) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern is NULL");
    if (pattern->family < LAC_FAMILY_ELEMENT || pattern->family > LAC_FAMILY_SHUFFLED)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern: family is %d; it lies in 1 to 5", (int)pattern->family);
    lac_status status = validate_units(pattern);
    if (status) return status;
    /* A density of 0 with M = 0 is a forgotten N:M, so say so in N:M's words unless the family has none. */
    bool is_free = pattern->m == 0 && (pattern->density != 0 || pattern->family == LAC_FAMILY_SHUFFLED);
    return is_free ? validate_free(pattern) : validate_n_of_m(pattern);
}

bool lac_pattern_equal(const lac_pattern *a, const lac_pattern *b)
{
    return a->family == b->family && a->unit_n == b->unit_n && a->unit_k == b->unit_k && a->n == b->n && a->m == b->m &&
           a->density == b->density;
}

double lac_pattern_density(const lac_pattern *pattern)
{
    if (lac_pattern_validate(pattern)) return 0;
    return pattern->m ? (double)pattern->n / pattern->m : pattern->density;
}

/* ---- on a matrix */

static int64_t at_least_one(int64_t size) { return size > 1 ? size : 1; }

static int32_t bits_for(int32_t m)
{
    int32_t bits = 0;
    while ((1 << bits) < m) ++bits;
    return bits;
}

/* Whole groups keep `n` each, a last one of r units min(n, r). */
static int64_t kept_of(int64_t units, int32_t n, int32_t m) { return units / m * n + lac_smaller(n, units % m); }

lac_status lac_geometry_make(const lac_pattern *pattern, int64_t n, int64_t k, lac_geometry *out)
{
    lac_status status = lac_pattern_validate(pattern);
    if (status) return status;
    if (n < 0 || n > LAC_MAX_DIMENSION)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "n is %" PRId64 "; it lies in 0 to 2147483647", n);
    if (k < 0 || k > LAC_MAX_DIMENSION)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "k is %" PRId64 "; it lies in 0 to 2147483647", k);

    lac_geometry g = {.n = n, .k = k};
    g.unit_n = lac_smaller(pattern->unit_n, at_least_one(n));
    g.unit_k = lac_smaller(pattern->unit_k, at_least_one(k));
    g.row_groups = lac_ceil_divide(n, g.unit_n);
    g.units = lac_ceil_divide(k, g.unit_k);
    g.is_free = pattern->m == 0;
    if (g.is_free) {
        int64_t most = (int64_t)floor(pattern->density * (double)g.units + 0.5);
        g.selected = lac_smaller(at_least_one(most), g.units);
        g.slots = g.selected;
    } else {
        bool vnm = pattern->family == LAC_FAMILY_VNM;
        g.group_m = pattern->m;
        g.group_n = vnm ? LAC_VNM_SELECTED : pattern->n;
        g.slot_n = pattern->n;
        g.groups = lac_ceil_divide(g.units, g.group_m);
        g.selected = kept_of(g.units, g.group_n, g.group_m);
        g.slots = kept_of(g.units, g.slot_n, g.group_m);
        g.index_bits = bits_for(g.group_m);
    }
    *out = g;
    return LAC_STATUS_OK;
}
