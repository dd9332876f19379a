/* chat_rows.c - the chat templates, one row each, as the models' makers publish them.
 *
 * Programs that are long, or that have parts for tools, are known by the hash of their common form
 * alone (`form`); they lie in tests/golden/chat_templates/ROW, where test_chat.c compares them, and
 * prints the hash of a new one.
 *
 * For conversations without tools a row writes the same text as the maker's program in Jinja, which
 * tests/cli/chat.py compares.  Only Mistral v3's differs in one place: if a conversation ends with
 * an answer, the program leaves the system message out; the row puts it before the last question,
 * as Mistral's own tokenizer does.
 */
#include "io/chat_rows.h"

#define LLAMA3(role, more)                                                                      \
    {                                                                                           \
        .before = "<|start_header_id|>" role "<|end_header_id|>\n\n" more, .end = "<|eot_id|>", \
        .trims = 1                                                                              \
    }
#define LLAMA3_TOKENS                                                                 \
    {                                                                                 \
        "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" \
    }
#define CHATML(role)                                                           \
    {                                                                          \
        .before = "<|im_start|>" role "\n", .end = "<|im_end|>", .after = "\n" \
    }
#define CHATML_TOKENS                \
    {                                \
        "<|im_start|>", "<|im_end|>" \
    }

#define PHI4(role)                                                      \
    {                                                                   \
        .before = "<|im_start|>" role "<|im_sep|>", .end = "<|im_end|>" \
    }
#define PHI4_SYSTEM                          \
    "{% if (message['role'] == 'system') %}" \
    "{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}"

#define NO_PROMPT                                                                             \
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% " \
    "endif %}"
#define CHATML_MESSAGE \
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
#define CHATML_PROMPT \
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

const struct chat_template chat_rows[] = {
    {.name = "llama2",
     .role = {[CHAT_SYSTEM] = {.before = "<<SYS>>\n", .end = "\n<</SYS>>\n\n"},
              [CHAT_USER] = {.before = "<s>[INST] ", .end = " [/INST]", .trims = 1},
              [CHAT_ASSISTANT] = {.lead = " ", .end = " </s>", .trims = 1}},
     .system = CHAT_SYSTEM_FIRST_USER,
     .alternates = 1,
     .tokens = {"<s>", "</s>"},
     .form = {0x644114f2846a583e}},
    {.name = "llama3",
     .begin = "<|begin_of_text|>",
     .role = {[CHAT_SYSTEM] = LLAMA3("system", ""),
              [CHAT_USER] = LLAMA3("user", ""),
              [CHAT_ASSISTANT] = LLAMA3("assistant", "")},
     .tokens = LLAMA3_TOKENS,
     /* The second program begins an answer behind the last message, whoever asks for it. */
     .form = {0x72988483c7369e25, 0xf99c31519417e7ea}},
    /* "Today Date" is what the program writes where it is given no date. */
    {.name = "llama3.1",
     .begin = "<|begin_of_text|>",
     .role = {[CHAT_SYSTEM] = LLAMA3("system", "Cutting Knowledge Date: December 2023\n"
                                               "Today Date: 26 Jul 2024\n\n"),
              [CHAT_USER] = LLAMA3("user", ""),
              [CHAT_ASSISTANT] = LLAMA3("assistant", "")},
     .system_default = "",
     .tokens = LLAMA3_TOKENS,
     .form = {0x737662a8c2b40bd2}},
    {.name = "mistral-v1",
     .begin = "<s>",
     .role = {[CHAT_SYSTEM] = {.end = "\n\n"},
              [CHAT_USER] = {.before = " [INST] ", .end = " [/INST]"},
              [CHAT_ASSISTANT] = {.lead = " ", .end = "</s>"}},
     .system = CHAT_SYSTEM_FIRST_USER,
     .alternates = 1,
     .tokens = {"<s>", "</s>"},
     .form = {0x03f868c25825e53e}},
    /* The template of the same models before the middle of 2024. */
    {.name = "mistral-v1-2023",
     .begin = "<s>",
     .role = {[CHAT_USER] = {.before = "[INST] ", .end = " [/INST]"},
              [CHAT_ASSISTANT] = {.end = "</s>"}},
     .system = CHAT_SYSTEM_REFUSED,
     .alternates = 1,
     .tokens = {"<s>", "</s>"},
     .form = {0xedeaf173199eb486}},
    {.name = "mistral-v3",
     .begin = "<s>",
     .role = {[CHAT_SYSTEM] = {.end = "\n\n"},
              [CHAT_USER] = {.before = "[INST] ", .end = "[/INST]"},
              [CHAT_ASSISTANT] = {.lead = " ", .end = "</s>", .trims = 1}},
     .system = CHAT_SYSTEM_LAST_USER,
     .alternates = 1,
     .tokens = {"<s>", "</s>", "[INST]", "[/INST]"},
     .form = {0x2d2c2128410ad2a1}},
    {.name = "chatml",
     .role = {[CHAT_SYSTEM] = CHATML("system"),
              [CHAT_USER] = CHATML("user"),
              [CHAT_ASSISTANT] = CHATML("assistant")},
     .tokens = CHATML_TOKENS,
     /* The programs of transformers' documentation and trl's setup_chat_format(); the same with a
      * shorter name; with a first line, of Yi-34B-Chat and axolotl; and unsloth's. */
     .program = {"{% for message in messages %}" CHATML_MESSAGE CHATML_PROMPT,
                 "{% for m in messages %}{{'<|im_start|>' + m.role + '\\n' + m.content + "
                 "'<|im_end|>\\n'}}" CHATML_PROMPT,
                 NO_PROMPT "{% for message in messages %}" CHATML_MESSAGE CHATML_PROMPT,
                 "{% for message in messages %}{% if message['role'] == 'user' %}"
                 "{{'<|im_start|>user\\n' + message['content'] + '<|im_end|>\\n'}}"
                 "{% elif message['role'] == 'assistant' %}"
                 "{{'<|im_start|>assistant\\n' + message['content'] + '<|im_end|>\\n' }}"
                 "{% else %}{{ '<|im_start|>system\\n' + message['content'] + '<|im_end|>\\n' }}"
                 "{% endif %}" CHATML_PROMPT},
     .form = {0xad8303627ac28178}}, /* of Qwen3's Instruct-2507 */
    {.name = "qwen2",
     .role = {[CHAT_SYSTEM] = CHATML("system"),
              [CHAT_USER] = CHATML("user"),
              [CHAT_ASSISTANT] = CHATML("assistant")},
     .system_default = "You are a helpful assistant.",
     .tokens = CHATML_TOKENS,
     /* The program of Qwen2-7B-Instruct. */
     .program = {"{% for message in messages %}"
                 "{% if loop.first and messages[0]['role'] != 'system' %}"
                 "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif "
                 "%}" CHATML_MESSAGE CHATML_PROMPT},
     .form = {0xcd93b593574048e8}}, /* of Qwen2.5's base models, with tools */
    {.name = "qwen2.5",
     .role = {[CHAT_SYSTEM] = CHATML("system"),
              [CHAT_USER] = CHATML("user"),
              [CHAT_ASSISTANT] = CHATML("assistant")},
     .system_default = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
     .tokens = CHATML_TOKENS,
     .form = {0x3b25183545151794}},
    {.name = "qwen3",
     .role = {[CHAT_SYSTEM] = CHATML("system"),
              [CHAT_USER] = CHATML("user"),
              [CHAT_ASSISTANT] = CHATML("assistant")},
     .last_answer = "<think>\n\n</think>\n\n",
     .refused = "</think>",
     .keeps = "chatml",
     .tokens = CHATML_TOKENS,
     .form = {0xbfbd43c23bdac6f7, 0xea472ed94192ff0e}},
    {.name = "phi4",
     .role = {[CHAT_SYSTEM] = PHI4("system"),
              [CHAT_USER] = PHI4("user"),
              [CHAT_ASSISTANT] = PHI4("assistant")},
     .alternates = 1, /* the second program begins an answer after each question */
     .tokens = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
     /* The programs of phi-4: of 2025, and the first one. */
     .program = {"{% for message in messages %}" PHI4_SYSTEM
                 "{% elif (message['role'] == 'user') %}"
                 "{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}"
                 "{% elif (message['role'] == 'assistant') %}"
                 "{{'<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>'}}"
                 "{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
                 "{% for message in messages %}" PHI4_SYSTEM
                 "{% elif (message['role'] == 'user') %}"
                 "{{'<|im_start|>user<|im_sep|>' + message['content'] + "
                 "'<|im_end|><|im_start|>assistant<|im_sep|>'}}"
                 "{% elif (message['role'] == 'assistant') %}{{message['content'] + '<|im_end|>'}}"
                 "{% endif %}{% endfor %}"}},
};

const int chat_row_count = sizeof chat_rows / sizeof chat_rows[0];
