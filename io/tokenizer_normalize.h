/* tokenizer_normalize.h - the rules that normalizers are made of: struct tokenizer_rule.apply. */
#ifndef TRIREME_IO_TOKENIZER_NORMALIZE_H
#define TRIREME_IO_TOKENIZER_NORMALIZE_H

#include "io/tokenizer_private.h"

/* A rule appends its text, valid UTF-8, changed, to out.  Returns 0, or -1 with err set. */
typedef int tokenizer_apply(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                            const char *text, size_t bytes, struct tokenizer_buffer *out,
                            struct error *err);

tokenizer_apply tokenizer_rule_form, /* a normal form */
    tokenizer_rule_lower,            /* small letters, one by one */
    tokenizer_rule_leave_out,        /* without characters of rule->classes */
    tokenizer_rule_clean,            /* BERT's: without controls, every space is ' ' */
    tokenizer_rule_ideographs,       /* BERT's: a space on both sides of each */
    tokenizer_rule_strip,            /* without spaces at the ends rule->left, rule->right */
    tokenizer_rule_prepend,          /* rule->to before it */
    tokenizer_rule_replace_text,     /* rule->to for every rule->from */
    tokenizer_rule_replace_pattern;  /* rule->to for every match */

#endif
