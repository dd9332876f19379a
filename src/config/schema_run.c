/* schema_run.c - keys of what a run writes: checkpoints, generated texts, its directory. */
#include "config/schema_rows.h"

static const struct key_choice self_checks[] = {
    {.name = "auto", .value = SELF_CHECK_AUTO},
    {.name = "always", .value = SELF_CHECK_ALWAYS},
    {.name = "off", .value = SELF_CHECK_OFF, .aliases = "none|never"},
    {0},
};

static const struct key_choice frozens[] = {
    {.name = "auto", .value = FROZEN_AUTO},
    {.name = "reference", .value = FROZEN_REFERENCE},
    {.name = "full", .value = FROZEN_FULL},
    {0},
};

static const struct key rows[] = {
    {KEY(INT, checkpoint.every, "0"), .min = 0, .max = INT64_C(1000000000000),
     .help = "steps between checkpoints; 0: only at the end and on a signal"},
    {KEY(INT, checkpoint.keep, "2"), .min = 2, .max = INT32_MAX,
     .help = "newest checkpoints that are not deleted; the newest after which the training loss "
             "was about the lowest is spared beside them, so that a run that diverges keeps a good "
             "one"},
    {KEY(BOOL, checkpoint.async, "false"),
     .help =
         "true: checkpoints are written in the background: steps wait only until the state is "
         "copied to the host's memory, which takes as much of it as the rank's part of a "
         "checkpoint has (host, in trireme plan), and a thread of each rank writes the copy "
         "beside them; a checkpoint that is due before the last one is written waits for it.  "
         "The one at the end, or on a signal, is written at once. Best where cores are free: "
         "where all compute, the thread takes a tenth to a fifth of one, and steps beside it are "
         "longer by that. Needs checkpoint.every, or "
         "evaluations with keep_best"},
    {KEY(BOOL, checkpoint.keep_best, "false"),
     .help = "true: an evaluation with the lowest loss so far saves a checkpoint, which is kept "
             "until there is a better one; checkpoints/best leads to it, for evaluate, generate "
             "and convert"},
    {KEY(TEXT, checkpoint.resume, "auto"),
     .help = "where the run starts.  auto: from the newest good checkpoint of run.dir, if it holds "
             "a run, else from nothing.  A path, of a checkpoint or of a run: from there, and once "
             "run.dir has later checkpoints of its own, from the newest of them, so that the same "
             "command started again goes on.  A number: back to that step of run.dir; later "
             "checkpoints are moved to branches/.  none: from nothing, refused where run.dir holds "
             "a run (run.fresh)"},

    {KEY(BOOL, checkpoint.export_hf, "false"),
     .help = "true: when training ends, the model, or adapter, is written to hf/ in run.dir as "
             "trireme convert writes it; with checkpoint.keep_best that of the best evaluation. "
             "What is in hf/ and not of this run becomes hf.1; a missing export is made by the "
             "next start"},
    {KEY(CHOICE, checkpoint.frozen, "auto"), .choices = frozens,
     .help =
         "what checkpoints of a run with adapters (lora.r) hold of the frozen tensors: full all "
         "of them, reference only where they are, model.path, and a hash of their names, shapes "
         "and a sample of their numbers (three times 512 bytes of each); auto is reference "
         "where model.path is a folder with safetensors, else full, so also where it is a run; "
         "full, too, once the files of that folder are no longer those that the run began with, "
         "and in a run that goes on from a checkpoint that is. Adapters, and modules of "
         "lora.modules_to_save, are in every checkpoint, also where train.freeze freezes them"},

    {KEY(INT, generate.samples, "0"), .min = 0, .max = 10000,
     .help = "while training, at each evaluation: how many texts of data.valid the model is given "
             "the beginning of and continues; they go to samples.jsonl in run.dir, each beside how "
             "it went on, and the first to the log; not with parallel.context; 0: none"},
    {KEY(INT, generate.batch, "8"), .min = 1, .max = 4096,
     .help = "texts that are continued at a time"},
    {KEY(INT, generate.tokens, "128"), .min = 1, .max = 1000000000,
     .help = "most new tokens of a text"},
    {KEY(INT, generate.min_tokens, "0"), .min = 0, .max = 1000000000,
     .help = "fewest new tokens of a text: until then no token that would end it is taken"},
    {KEY(REAL, generate.temperature, "0.8"), .least = 0, .most = 100,
     .help = "what logits are divided by before a token is drawn; 0: the likeliest token, always"},
    {KEY(INT, generate.top_k, "0"), .min = 0, .max = 1000000000,
     .help = "draw among so many likeliest tokens; 0: all"},
    {KEY(REAL, generate.top_p, "1"), .least = 0, .most = 1,
     .help = "draw among the fewest likeliest tokens whose probabilities come to this"},
    {KEY(REAL, generate.repetition_penalty, "1"), .least = 0.01, .most = 100,
     .help =
         "what positive logits of tokens that the text already has are divided by, and negative "
         "ones multiplied; 1: nothing"},

    {KEY(TEXT, run.dir, "runs/default"), .by_rank = 1,
     .help = "directory of metrics, log, effective config and checkpoints"},
    {KEY(BOOL, run.fresh, "false"),
     .help = "true: start over. What run.dir holds is moved aside, to run.dir with .1, .2 ... "
             "after its name, and nothing is deleted; with a checkpoint.resume of this run, a new "
             "branch from there. A job that Slurm requeues goes on with what it began. For the "
             "command line: each start anew moves what is there aside"},
    {KEY(INT, run.trace, "0"), .min = 0, .max = INT32_MAX,
     .help = "step whose instructions are traced to trace.json; 0: none"},
    {KEY(INT, run.log_every, "10"), .min = 1, .max = INT64_C(1000000000000),
     .help = "steps between progress lines"},
    {KEY(INT, run.hang_seconds, "600"), .min = 0, .max = 1 << 20,
     .help = "end the job, naming rank, node and operation, when a transfer has not advanced for "
             "this long and the ranks that it waits for show no sign of life (exit code 94); time "
             "in which the job was suspended does not count; 0: wait for ever"},
    {KEY(INT, run.threads, "0"), .min = 0, .max = 4096, .by_rank = 1,
     .help = "compute threads of a rank; 0: OMP_NUM_THREADS if it is set, else cores of the node / "
             "ranks on it"},
    {KEY(TEXT, run.machine, "auto"),
     .help =
         "the machine that steps are forecast for at the start (forecast.json).  After ten "
         "steps, and when their time changes, the run is compared with that, and its ranks with "
         "one another, and a line says what is off and the likely cause.  A name that trireme "
         "plan --machine knows, FILE or FILE:NAME (trireme doctor --measure FILE writes one), "
         "and after @ another network of its nodes: h100@8x400Gb.  auto: by the name of the "
         "GPU; none, as auto on processors: no forecast; off: nothing is compared, either"},
    {KEY(CHOICE, run.self_check, "auto"), .choices = self_checks,
     .help =
         "compare what GPUs compute with the CPU before the first step, on small inputs, and "
         "libraries' products and attentions of the run's own shapes with trireme's kernels.  "
         "auto: once for a kind of GPU, its driver, libraries and this build, what was found being "
         "kept in ~/.cache/trireme; always: at each start; off: never.  Where cuBLASLt or cuDNN "
         "is wrong, trireme's own kernels compute in its place, or another algorithm; where an own "
         "kernel is wrong, the run is refused"},
};

const struct key_table schema_run = {.keys = rows, .count = sizeof rows / sizeof rows[0]};
