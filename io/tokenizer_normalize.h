/* tokenizer_normalize.h - the rules that normalizers are made of: struct tokenizer_rule.apply. */
#ifndef TRIREME_IO_TOKENIZER_NORMALIZE_H
#define TRIREME_IO_TOKENIZER_NORMALIZE_H

#include "io/tokenizer_private.h"

/* Append text, valid UTF-8, changed by the rule, to out.  Returns 0, or -1 with err set. */
typedef int tokenizer_apply(const struct tokenizer_rule *rule, struct tokenizer_encoder *encoder,
                            const char *text, size_t bytes, struct tokenizer_buffer *out,
                            struct error *err);

tokenizer_apply tokenizer_rule_form, /* make it the normal form rule->form */
    tokenizer_rule_lower,            /* make each character lower case */
    tokenizer_rule_leave_out,        /* leave out characters of rule->classes */
    tokenizer_rule_clean,            /* BERT: leave out controls, make every space ' ' */
    tokenizer_rule_ideographs,       /* BERT: put a space before and after each ideograph */
    tokenizer_rule_strip,            /* leave out spaces at the ends rule->left, rule->right */
    tokenizer_rule_prepend,          /* put rule->to before the text */
    tokenizer_rule_replace_text,     /* replace every rule->from by rule->to */
    tokenizer_rule_replace_pattern;  /* replace every match of rule->regex by rule->to */

#endif
