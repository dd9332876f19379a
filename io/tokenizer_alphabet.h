/* tokenizer_alphabet.h - the letters that stand for bytes in the vocabulary of a byte-level BPE.
 *
 * A byte that is a printable character of Latin-1 is written as that character; the other 68 bytes,
 * in order, as U+0100, U+0101 and so on: the space is U+0120, "Ġ". */
#ifndef TRIREME_IO_TOKENIZER_ALPHABET_H
#define TRIREME_IO_TOKENIZER_ALPHABET_H

#include <stdint.h>

/* Returns 1 if a byte is a printable character of Latin-1. */
static inline int tokenizer_alphabet_shows(uint32_t byte)
{
    return (byte > 32 && byte < 127) || (byte > 160 && byte != 173 && byte < 256);
}

/* Returns the letter of a byte. */
static inline uint32_t tokenizer_alphabet_code(uint32_t byte)
{
    if (tokenizer_alphabet_shows(byte))
        return byte;
    return 256 + (byte < 33 ? byte : byte < 161 ? byte - 127 + 33 : 67);
}

/* Returns the byte of a letter, or -1 for a character that stands for no byte. */
static inline int tokenizer_alphabet_byte(uint32_t code)
{
    if (code < 256)
        return tokenizer_alphabet_shows(code) ? (int)code : -1;
    code -= 256;
    return code < 33 ? (int)code : code < 67 ? (int)code - 33 + 127 : code == 67 ? 173 : -1;
}

#endif
