/* foreign_model.c - names of files by which models and checkpoints of other programs are
 * recognised; nothing in the files is read. */
#include "config/foreign_model.h"

#include <dirent.h>
#include <fnmatch.h>
#include <string.h>

/* Files by which a folder is recognised, what it is then, and what makes a folder of Hugging Face's
 * files of it.  The first row of which a name matches counts. */
static const struct format {
    const char *files, *what, *instead; /* files: patterns "a|b" */
} formats[] = {
    {.files = "*.distcp",
     .what = "a distributed checkpoint of PyTorch (DCP), as FSDP and torchtitan save",
     .instead =
         "torchtitan's convert_to_hf.py, or transformers' save_pretrained() after loading it"},
    {.files = "consolidated.*.pth",
     .what = "Meta's own files of a Llama",
     .instead = "the model's folder on Hugging Face's hub, or transformers' "
                "convert_llama_weights_to_hf.py"},
    {.files = "zero_to_fp32.py|mp_rank_*_model_states.pt|*_optim_states.pt|global_step*",
     .what = "a checkpoint of DeepSpeed",
     .instead = "its zero_to_fp32.py with --safe_serialization, beside the model's config.json"},
    {.files = "latest_checkpointed_iteration.txt|iter_[0-9]*|model_optim_rng.pt",
     .what = "a checkpoint of Megatron-LM",
     .instead = "Megatron-Bridge, or Megatron-LM's tools/checkpoint/convert.py"},
    {.files = "*.gguf",
     .what = "a model in GGUF, as llama.cpp has it",
     .instead = "the folder of safetensors that it was made of"},
    {.files = "ckpt.pt",
     .what = "a checkpoint of nanoGPT",
     .instead = "transformers' GPT2LMHeadModel with its tensors and save_pretrained()"},
    {.files = "model_[0-9]*.bin|state_[0-9]*.bin|gpt2_*.bin",
     .what = "a checkpoint of llm.c",
     .instead = "its dev/eval/export_hf.py"},
};

/* Does a name match one of patterns "a|b"? */
static int matches(const char *patterns, const char *name)
{
    char pattern[64];
    for (const char *p = patterns; p; p = strchr(p, '|')) {
        p += *p == '|';
        size_t bytes = strcspn(p, "|");
        memcpy(pattern, p, bytes);
        pattern[bytes] = 0;
        if (!fnmatch(pattern, name, 0))
            return 1;
    }
    return 0;
}

static const struct format *format_of_name(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (matches(formats[i].files, name))
            return &formats[i];
    return NULL;
}

int foreign_model_refuse(const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    const struct format *found = format_of_name(slash ? slash + 1 : path);
    DIR *folder = opendir(path);
    const struct dirent *item;
    while (folder && !found && (item = readdir(folder)))
        found = format_of_name(item->d_name);
    if (folder)
        closedir(folder);
    if (!found)
        return 0;
    return error_set(err,
                     "%.200s is %s, which trireme does not read; model.path wants a folder with "
                     "config.json and safetensors: %s",
                     path, found->what, found->instead);
}
