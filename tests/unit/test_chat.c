/* test_chat.c - conversations by chat templates.  That these are the published ones is compared in
 * tests/cli/tokenize_chat.sh. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/hash.h"
#include "io/chat.h"
#include "io/chat_encode.h"
#include "io/chat_program.h"

static const struct chat_message conversation[] = {
    {.role = CHAT_SYSTEM, .text = "be kind", .bytes = 7},
    {.role = CHAT_USER, .text = " hi ", .bytes = 4},
    {.role = CHAT_ASSISTANT, .text = "hello\n", .bytes = 6, .trained = 1},
    {.role = CHAT_USER, .text = "bye", .bytes = 3},
    {.role = CHAT_ASSISTANT, .text = "so long", .bytes = 7, .trained = 1},
};

/* The text with what is trained in brackets. */
static const char *render(const char *name, const struct chat_message *messages, int count,
                          enum chat_use use)
{
    static char all[2000];
    struct chat_text text = {0};
    struct error err = {0};
    int trained = 0;
    all[0] = 0;
    if (chat_render(chat_find(name), messages, count, use, &text, &err))
        fail_msg("%s: %s", name, err.text);
    for (int i = 0; i < text.count; i++) {
        if (text.pieces[i].trained != trained)
            strcat(all, trained ? "}" : "{");
        trained = text.pieces[i].trained;
        strncat(all, text.pieces[i].text, text.pieces[i].bytes);
    }
    strcat(all, trained ? "}" : "");
    chat_free(&text);
    return all;
}

static void answers_are_trained(void **state)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"llama2", "<s>[INST] <<SYS>>\nbe kind\n<</SYS>>\n\n hi [/INST]{ hello </s>}"
                   "<s>[INST] bye [/INST]{ so long </s>}"},
        {"llama3",
         "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nbe kind<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n{hello<|eot_id|>}"
         "<|start_header_id|>user<|end_header_id|>\n\nbye<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n{so long<|eot_id|>}"},
        {"mistral-v1", "<s> [INST] be kind\n\n hi  [/INST]{ hello\n</s>} [INST] bye [/INST]"
                       "{ so long</s>}"},
        {"mistral-v3",
         "<s>[INST]  hi [/INST]{ hello</s>}[INST] be kind\n\nbye[/INST]{ so long</s>}"},
        {"chatml", "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\n hi <|im_end|>\n"
                   "<|im_start|>assistant\n{hello\n<|im_end|>}\n<|im_start|>user\nbye<|im_end|>\n"
                   "<|im_start|>assistant\n{so long<|im_end|>}\n"},
        {"qwen3", "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\n hi <|im_end|>\n"
                  "<|im_start|>assistant\n{hello\n<|im_end|>}\n<|im_start|>user\nbye<|im_end|>\n"
                  "<|im_start|>assistant\n<think>\n\n</think>\n\n{so long<|im_end|>}\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(render(rows[i].name, conversation, 5, CHAT_TRAIN), rows[i].text);
}

/* An answer without a question has no empty thoughts before it. */
static void thoughts_need_a_question(void **state)
{
    static const char response[] = "<tool_response>\nx\n</tool_response>";
    struct chat_message messages[] = {
        {.role = CHAT_USER, .text = response, .bytes = sizeof response - 1}, conversation[4]};
    assert_null(strstr(render("qwen3", conversation + 4, 1, CHAT_TRAIN), "<think>"));
    assert_null(strstr(render("qwen3", messages, 2, CHAT_TRAIN), "<think>"));
    assert_non_null(strstr(render("qwen3", messages, 1, CHAT_PROMPT), "<think>"));
    messages[0].bytes--;
    assert_non_null(strstr(render("qwen3", messages, 2, CHAT_TRAIN), "<think>"));
}

static void prompts_wait_for_an_answer(void **state)
{
    assert_string_equal(render("llama2", conversation + 1, 1, CHAT_PROMPT), "<s>[INST] hi [/INST]");
    assert_string_equal(render("qwen2", conversation + 1, 1, CHAT_PROMPT),
                        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
                        "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\n");
    assert_string_equal(render("qwen3", conversation + 1, 1, CHAT_PROMPT),
                        "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\n"
                        "<think>\n\n</think>\n\n");
}

/* What the data leave out of the loss is in no row's trained part. */
static void answers_may_be_left_out(void **state)
{
    struct chat_message messages[5];
    memcpy(messages, conversation, sizeof messages);
    messages[2].trained = 0;
    assert_string_equal(
        render("chatml", messages + 1, 4, CHAT_TRAIN),
        "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\nhello\n<|im_end|>\n"
        "<|im_start|>user\nbye<|im_end|>\n<|im_start|>assistant\n"
        "{so long<|im_end|>}\n");
}

static void refuse(const char *name, const struct chat_message *messages, int count,
                   enum chat_use use, const char *words)
{
    struct chat_text text = {0};
    struct error err = {0};
    assert_int_equal(chat_render(chat_find(name), messages, count, use, &text, &err), -1);
    if (!strstr(err.text, words))
        fail_msg("'%s', without '%s'", err.text, words);
    chat_free(&text);
}

static void orders_are_checked(void **state)
{
    const struct chat_message twice[] = {conversation[1], conversation[1], conversation[0]};
    const struct chat_message thinking[] = {
        conversation[1],
        {.role = CHAT_ASSISTANT, .text = "<think>x</think>y", .bytes = 17, .trained = 1}};
    refuse("chatml", conversation, 0, CHAT_TRAIN, "without a message");
    refuse("chatml", conversation, 1, CHAT_TRAIN, "without a message but the system's");
    refuse("chatml", twice, 3, CHAT_TRAIN, "message 3 is the system's");
    refuse("llama2", twice, 2, CHAT_TRAIN, "message 2 is of the user");
    refuse("mistral-v3", conversation + 2, 1, CHAT_TRAIN, "message 1 is of the assistant");
    refuse("mistral-v1-2023", conversation, 2, CHAT_TRAIN, "no system message");
    refuse("llama3", conversation, 3, CHAT_PROMPT, "nothing to answer");
    refuse("qwen3", thinking, 2, CHAT_TRAIN, "</think>, which chat template qwen3 does not keep");
    refuse("qwen3", thinking, 2, CHAT_TRAIN, "; --chat-template chatml does");
    assert_non_null(
        strstr(render("chatml", thinking, 2, CHAT_TRAIN), "{<think>x</think>y<|im_end|>}"));
}

static void spaces_are_pythons(void **state)
{
    struct chat_message message = {.role = CHAT_USER,
                                   .text = "\xe3\x80\x80 \x1f\xc2\xa0 x\xe2\x80\x8b\xe2\x80\xa9\n"};
    message.bytes = strlen(message.text);
    assert_string_equal(render("llama3", &message, 1, CHAT_TRAIN),
                        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n"
                        "x\xe2\x80\x8b<|eot_id|>");
    message.bytes = 3; /* nothing but space */
    assert_string_equal(render("llama3", &message, 1, CHAT_TRAIN),
                        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n<|eot_id|>");
}

static void tokens_are_looked_for(void **state)
{
    struct tokenizer *tokenizer;
    struct error err = {0};
    assert_int_equal(tokenizer_open(&tokenizer, "bytes", &err), 0);
    assert_int_equal(chat_encode_check(chat_find("chatml"), tokenizer, &err), -1);
    assert_non_null(
        strstr(err.text, "tokens <|im_start|>, <|im_end|>, which tokenizer bytes has not"));
    struct chat_specials *specials = chat_specials_create(tokenizer);
    assert_true(chat_specials_in(specials, "a<|endoftext|>", 14));
    assert_false(chat_specials_in(specials, "a<|endoftext|>", 13));
    assert_false(chat_specials_in(specials, "<|<|<|endoftext >", 17));
    assert_false(chat_specials_in(specials, "", 0));
    chat_specials_destroy(specials);
    tokenizer_close(tokenizer);
}

static void programs_have_one_form(void **state)
{
    static const struct {
        const char *jinja, *form;
    } rows[] = {
        {"{%- for m in ms -%}\n  {{ \"a\" + m.role }}{{ '\\n' + m['x'] }}\n{%- endfor %}",
         "{%for m in ms%}{{'a'+m['role']+'\n'+m['x']}}{%endfor%}"},
        {"{% if a %}\n    {% set b = 'it\\'s' %}\n{% endif %}\n",
         "{%if a%}{%set b='it\\'s'%}{%endif%}"},
        {"{{ a }}{# not } here #}{{ b|trim }}", "{{a+b|trim}}"},
        {"a\n{%+ if b %} {% endif +%}\nc\n", "{{'a\n'}}{%if b%}{{' '}}{%endif%}{{'\nc'}}"},
        {"{{ a if b else c }}{{ (a + b) + ns.f(x.y) }}", "{{(a if b else c)+(a+b)+ns.f(x['y'])}}"},
        {"{{ 'a' + 'b' }}c{{ d }}{{- 'e' }}", "{{'abc'+d+'e'}}"},
        {"{{ a", "{{ a"},
        {"{{ 'a", "{{ 'a"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *form = chat_program_form(rows[i].jinja), *again = chat_program_form(rows[i].form);
        assert_string_equal(form, rows[i].form);
        if (rows[i].form[0] == '{' && rows[i].form[2] != ' ')
            assert_string_equal(again, form);
        free(form);
        free(again);
    }
}

#define LOOP "{% for message in messages %}"
#define MESSAGE \
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
#define PROMPT "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define CHATML LOOP MESSAGE "{% endfor %}" PROMPT
#define CHATML_IN_JSON                                                          \
    LOOP "{{'<|im_start|>' + message['role'] + '\\\\n' + message['content'] + " \
         "'<|im_end|>\\\\n'}}{% "                                               \
         "endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\\\n' }}{% endif %}"

/* A program that is nearly a known one is another. */
static void only_known_programs_are_known(void **state)
{
    static const struct {
        const char *jinja, *name; /* NULL: none */
    } rows[] = {
        {CHATML, "chatml"},
        {"{%- for message in messages %}\n    {{- \"<|im_start|>\" + message.role + \"\\n\" }}\n"
         "    {{- message.content + \"<|im_end|>\\n\" }}\n{%- endfor %}\n{%- if "
         "add_generation_prompt %}\n    {{- '<|im_start|>assistant\n' }}\n{%- endif %}\n",
         "chatml"},
        {"{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}"
         "{% endif %}" CHATML,
         "chatml"},
        {CHATML "{{ eos_token }}", NULL},
        {CHATML "\n\n\n", NULL},
        {"{{ bos_token }}" CHATML, NULL},
        {"{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe nice.<|im_end|>\\n' "
         "}}"
         "{% endif %}" CHATML,
         NULL},
        {LOOP "{% if message['role'] != 'system' %}" MESSAGE "{% endif %}{% endfor %}" PROMPT,
         NULL},
        {LOOP "{{'<|im_start|>' + message['role'] + '\\n' + message['content']}}"
              "{% if not loop.last %}{{ '<|im_end|>' + '\\n'}}{% endif %}{% endfor %}" PROMPT,
         NULL},
        {"{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}"
         "{% endif %}{% if system_message is defined %}{{ system_message }}{% endif %}" LOOP
         "{% set content = message['content'] %}{% if message['role'] == 'user' %}"
         "{{ '<|im_start|>user\\n' + content + '<|im_end|>\\n<|im_start|>assistant\\n' }}"
         "{% elif message['role'] == 'assistant' %}{{ content + '<|im_end|>' + '\\n' }}{% endif %}"
         "{% endfor %}",
         NULL}, /* as of Yi-1.5's chat models */
        {LOOP
         "{% if loop.first and messages[0]['role'] != 'system' %}"
         "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}" MESSAGE
         "{% endfor %}" PROMPT,
         "qwen2"},
        {LOOP
         "{% if loop.first and messages[0]['role'] != 'system' %}"
         "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}" MESSAGE
         "{{ eos_token }}{% endfor %}" PROMPT,
         NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct chat_template *chat = chat_of_jinja(rows[i].jinja);
        if (!chat != !rows[i].name || (chat && strcmp(chat_name(chat), rows[i].name) != 0))
            fail_msg("'%s' is %s, not %s", rows[i].jinja, chat ? chat_name(chat) : "none",
                     rows[i].name ? rows[i].name : "none");
    }
}

#define LLAMA3_MESSAGE                                                                       \
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ " \
    "message['content'] | trim + '<|eot_id|>' %}"
#define LLAMA3_PROMPT                                                                              \
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% " \
    "endif %}"

static const char *name_of_jinja(const char *jinja)
{
    const struct chat_template *chat = chat_of_jinja(jinja);
    return chat ? chat_name(chat) : "none";
}

/* The text of a file, for free(). */
static char *text_of(const char *path)
{
    enum { MOST = 1 << 16 };
    char *text = array_make(MOST, 1);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, MOST, file) < MOST);
    fclose(file);
    return text;
}

/* The programs that makers publish are known by the folder's name; with a text more they are not.
 */
static void published_programs_are_known(void **state)
{
    const char *top = getenv("srcdir");
    char *pattern = array_format("%s/tests/golden/chat_templates/*/*.jinja", top ? top : ".");
    glob_t files;
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 12);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        const char *path = files.gl_pathv[i], *name = strrchr(path, '/');
        while (name[-1] != '/')
            name--;
        char *jinja = text_of(path);
        char *form = chat_program_form(jinja), *other = array_format("%s{{ eos_token }}", jinja);
        char *row = array_format("%.*s", (int)strcspn(name, "/"), name);
        if (strcmp(name_of_jinja(jinja), row) != 0)
            fail_msg("%s, of form %016llx, is %s", path,
                     (unsigned long long)hash_bytes(form, strlen(form)), name_of_jinja(jinja));
        assert_string_equal(name_of_jinja(other), "none");
        free(row);
        free(other);
        free(form);
        free(jinja);
    }
    globfree(&files);
    free(pattern);
}

/* Programs that have every phrase of a published one, and write another text. */
static void programs_with_the_same_phrases_are_not(void **state)
{
    static const char *const others[] = {
        /* as of Llama-3.1-Nemotron-Nano-8B: always a system message, and no text up to </think> */
        "{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{%- set system_message = "
        "messages[0]['content']|trim %}{%- set messages = messages[1:] %}{%- else %}{%- set "
        "system_message = \"\" %}{%- endif %}{{- "
        "\"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}{{- system_message }}{{- "
        "\"<|eot_id|>\" }}{%- for message in messages %}{%- if message['role'] == 'assistant' and "
        "'</think>' in message['content'] %}{%- set content = "
        "message['content'].split('</think>')[-1].lstrip() %}{%- else %}{%- set content = "
        "message['content'] %}{%- endif %}{{- '<|start_header_id|>' + message['role'] + "
        "'<|end_header_id|>\\n\\n' + content | trim + '<|eot_id|>' }}{%- endfor %}" LLAMA3_PROMPT,
        /* Llama 3's with a system message of its own */
        "{% if messages[0]['role'] != 'system' %}{{ bos_token + "
        "'<|start_header_id|>system<|end_header_id|>\\n\\nBe nice.<|eot_id|>' }}{% endif %}" LOOP
            LLAMA3_MESSAGE "{% if loop.index0 == 0 and message['role'] == 'system' %}{% set "
        "content = bos_token + content %}{% endif %}{{ content }}{% endfor %}" LLAMA3_PROMPT,
        /* Qwen2.5's with texts trimmed */
        LOOP "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou "
             "are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}{% "
             "endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + "
             "'<|im_end|>\\n'}}{% endfor %}" PROMPT,
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_string_equal(name_of_jinja(others[i]), "none");
}

/* A file that is there and cannot be read is named: it is not a tokenizer without a template. */
static void broken_files_are_named(void **state)
{
    char folder[] = "/tmp/trireme-chat-XXXXXX", path[64], config[64], jinja[64];
    const struct chat_template *chat;
    struct error err = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    snprintf(config, sizeof config, "%s/tokenizer_config.json", folder);
    snprintf(jinja, sizeof jinja, "%s/chat_template.jinja", folder);
    assert_int_equal(chat_of_tokenizer(&chat, path, &err), -1);
    assert_non_null(strstr(err.text, "tokenizer.json: the tokenizer has no chat template"));
    FILE *file = fopen(config, "w");
    fputs("{\"chat_template\": ", file);
    fclose(file);
    assert_int_equal(chat_of_tokenizer(&chat, path, &err), -1);
    assert_non_null(strstr(err.text, "tokenizer_config.json:1:"));
    file = fopen(config, "w");
    fprintf(file, "{\"chat_template\": \"%s\"}", CHATML_IN_JSON);
    fclose(file);
    assert_int_equal(chat_of_tokenizer(&chat, path, &err), 0);
    assert_int_equal(symlink("../blobs/absent", jinja), 0); /* of a download that was cut */
    assert_int_equal(chat_of_tokenizer(&chat, path, &err), -1);
    assert_non_null(strstr(err.text, "cannot open "));
    assert_non_null(strstr(err.text, "chat_template.jinja"));
    unlink(jinja);
    assert_int_equal(mkdir(jinja, 0700), 0);
    assert_int_equal(chat_of_tokenizer(&chat, path, &err), -1);
    assert_non_null(strstr(err.text, "cannot read "));
    rmdir(jinja);
    file = fopen(jinja, "w");
    fprintf(file, "%s{#%*s", CHATML, 1 << 20, "");
    fclose(file);
    assert_int_equal(chat_of_tokenizer(&chat, path, &err), -1);
    assert_non_null(strstr(err.text, "no chat template has 1048576 bytes"));
    assert_int_equal(truncate(jinja, sizeof CHATML - 1), 0);
    assert_int_equal(chat_of_tokenizer(&chat, path, &err), 0);
    unlink(jinja);
    unlink(config);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_trained),
        cmocka_unit_test(prompts_wait_for_an_answer),
        cmocka_unit_test(answers_may_be_left_out),
        cmocka_unit_test(orders_are_checked),
        cmocka_unit_test(spaces_are_pythons),
        cmocka_unit_test(tokens_are_looked_for),
        cmocka_unit_test(programs_have_one_form),
        cmocka_unit_test(only_known_programs_are_known),
        cmocka_unit_test(thoughts_need_a_question),
        cmocka_unit_test(published_programs_are_known),
        cmocka_unit_test(programs_with_the_same_phrases_are_not),
        cmocka_unit_test(broken_files_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
