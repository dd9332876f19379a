/* nccl_reduce.cc - sums and other reductions, element by element, in the order of a ring. */
#include "nccl_reduce.h"

#include <string.h>

#include "base/dtype.h"

namespace emulate
{
namespace
{

struct bf16 {
    uint16_t bits;

    bf16() = default;
    explicit bf16(float x)
    {
        uint32_t wide;
        memcpy(&wide, &x, 4);
        wide = x != x ? 0x7fff0000u : wide + 0x7fffu + (wide >> 16 & 1);
        bits = (uint16_t)(wide >> 16);
    }
    explicit operator float() const
    {
        uint32_t wide = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &wide, 4);
        return x;
    }
};

struct half {
    f16 bits;

    half() = default;
    explicit half(float x) : bits(f32_to_f16(x))
    {
    }
    explicit operator float() const
    {
        return f16_to_f32(bits);
    }
};

/* What arithmetic on type is done in. */
template <typename type> struct arithmetic {
    using wide = type;
};
template <> struct arithmetic<bf16> {
    using wide = float;
};
template <> struct arithmetic<half> {
    using wide = float;
};

template <typename wide> wide combine(int op, wide a, wide b)
{
    switch (op) {
    case ncclProd: return a * b;
    case ncclMax: return a < b || a != a ? b : a; /* a number wins over NaN, as in the library */
    case ncclMin: return b < a || a != a ? b : a;
    default: return a + b;
    }
}

/* A mean is a sum of what was multiplied by 1 / ranks before, both rounded to type. */
template <typename type> type scaled(int op, type x, int ranks)
{
    using wide = typename arithmetic<type>::wide;
    return op == ncclAvg ? (type)((wide)x * (wide)(type)((wide)1 / (wide)ranks)) : x;
}

template <typename type>
void reduce_as(int op, void *to, const void *const from[], int ranks, int first, uint64_t count)
{
    using wide = typename arithmetic<type>::wide;

    for (uint64_t i = 0; i < count; i++) {
        type sum = scaled(op, ((const type *)from[first])[i], ranks);
        for (int hop = 1; hop < ranks; hop++) {
            type x = scaled(op, ((const type *)from[(first + hop) % ranks])[i], ranks);
            sum = (type)combine<wide>(op, (wide)sum, (wide)x);
        }
        ((type *)to)[i] = sum;
    }
}

using reducer = void (*)(int, void *, const void *const[], int, int, uint64_t);

const struct {
    int type;
    uint64_t bytes;
    reducer run;
    bool means;
} types[] = {
    {ncclInt8, 1, reduce_as<int8_t>, false},   {ncclUint8, 1, reduce_as<uint8_t>, false},
    {ncclInt32, 4, reduce_as<int32_t>, false}, {ncclUint32, 4, reduce_as<uint32_t>, false},
    {ncclInt64, 8, reduce_as<int64_t>, false}, {ncclUint64, 8, reduce_as<uint64_t>, false},
    {ncclFloat32, 4, reduce_as<float>, true},  {ncclFloat64, 8, reduce_as<double>, true},
    {ncclBfloat16, 2, reduce_as<bf16>, true},  {ncclFloat16, 2, reduce_as<half>, true},
};

} // namespace

uint64_t type_bytes(int type)
{
    for (const auto &t : types)
        if (t.type == type)
            return t.bytes;
    return 0;
}

bool reduces(int type, int op)
{
    for (const auto &t : types)
        if (t.type == type)
            return op >= ncclSum && op < (t.means ? ncclNumOps : ncclAvg);
    return false;
}

void reduce(int type, int op, void *to, const void *const from[], int ranks, int first,
            uint64_t count)
{
    for (const auto &t : types)
        if (t.type == type)
            t.run(op, to, from, ranks, first, count);
}

} // namespace emulate
