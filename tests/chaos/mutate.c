/* mutate.c - damage a file: mutate FILE SEED prints what it did, "bit 7 of byte 123".
 *
 * The kinds: one bit, one byte, a range of zeros, the end cut off, bytes added at the end.  What
 * would leave the file as it was is drawn again.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

static size_t mutate(uint8_t *data, size_t size, char *what, size_t room)
{
    size_t at = draw(size), length = 1 + draw(size - at < 64 ? size - at : 64);
    switch (draw(6)) {
    case 0:
    case 1:
        data[at] ^= (uint8_t)(1u << (length % 8));
        snprintf(what, room, "bit %zu of byte %zu", length % 8, at);
        return size;
    case 2:
        data[at] = (uint8_t)draw(256);
        snprintf(what, room, "byte %zu is %d", at, data[at]);
        return size;
    case 3:
        memset(data + at, 0, length);
        snprintf(what, room, "%zu zeros at byte %zu", length, at);
        return size;
    case 4: snprintf(what, room, "cut at byte %zu", at); return at;
    default:
        memset(data + size, (int)draw(256), length);
        snprintf(what, room, "%zu bytes added", length);
        return size + length;
    }
}

int main(int argc, char **argv)
{
    enum { ROOM = 64 };
    char what[80] = "";
    FILE *file = argc == 3 ? fopen(argv[1], "r+b") : NULL;
    if (!file || fseek(file, 0, SEEK_END))
        return 1;
    size_t size = (size_t)ftell(file), now;
    uint8_t *before = calloc(1, size + ROOM), *data = calloc(1, size + ROOM);
    state = strtoull(argv[2], NULL, 10);
    rewind(file);
    if (!size || !before || !data || fread(before, 1, size, file) != size)
        return 1;
    do {
        memcpy(data, before, size + ROOM);
        now = mutate(data, size, what, sizeof what);
    } while (now == size && !memcmp(before, data, size));
    fclose(file);
    file = fopen(argv[1], "wb");
    if (!file || fwrite(data, 1, now, file) != now || fclose(file))
        return 1;
    puts(what);
    return 0;
}
