/* training_data.c - see training_data.h. */
#include "train/training_data.h"

#include "base/round.h"
#include "train/data_chat.h"
#include "train/data_files.h"
#include "train/data_tokenizer.h"
#include "train/tokenizer_check.h"

/* Warn at the start, not after days, that the model will be exported without its tokenizer. */
static void warn_export(const struct session *s, const struct dataset *train)
{
    const char *name = tokenizer_check_name(train);
    struct tokenizer *tokenizer = NULL;
    struct error why = {0};
    if (!s->config.checkpoint.export_hf || s->config.lora.r || !data_tokenizer_has_files(name))
        return;
    if (data_tokenizer_open(&tokenizer, name, &s->config, &why))
        log_warn(s->log,
                 "checkpoint.export_hf will write the model without a tokenizer: data.train is of "
                 "\"%s\", and %s",
                 name, why.text);
    tokenizer_close(tokenizer);
}

int training_data_open(struct training_data *data, const struct session *s, struct error *err)
{
    const struct config_data *names = &s->config.data;
    if (!names->train[0])
        return error_set(err, "data.train names no token file; make one: trireme tokenize TEXT "
                              "-o FILE.h5");
    if (batches_open(&data->train, s, names->train, LOADER_SHUFFLED, err))
        return error_prefix(err, "data.train");
    if (names->valid[0] && batches_open(&data->valid, s, names->valid, LOADER_SEQUENTIAL, err))
        return error_prefix(err, "data.valid");
    if (tokenizer_check_data(&data->train.data, &data->valid.data, err))
        return -1;
    if (!world_rank(s->world)) {
        data_files_warn(s->log, names);
        data_chat_report(s->log, &data->train.data, &data->valid.data);
        batches_warn_left(&data->valid, s->log);
        warn_export(s, &data->train.data);
    }
    return 0;
}

void training_data_close(struct training_data *data)
{
    read_ahead_close(data->ahead);
    batches_close(&data->train);
    batches_close(&data->valid);
    data->ahead = NULL;
}

int training_data_begin(struct training_data *data, const struct session *s, int64_t sample,
                        int64_t steps, struct error *err)
{
    const int64_t each = s->layout.global_batch;
    const int64_t most =
        (INT64_MAX - sample) / each - READ_AHEAD; /* no sample has a number above */
    const struct read_ahead_range range = {sample, each, sample + min_i64(steps, most) * each};
    return world_agree(s->world, read_ahead_open(&data->ahead, &data->train, s->train, range, err),
                       err)
               ? error_prefix(err, "data.train")
               : 0;
}

int training_data_check(const struct training_data *data, struct world *world, struct error *err)
{
    *err = data->unread;
    if (err->text[0])
        return -1;
    return world_agree(world, read_ahead_check(data->ahead, err), err)
               ? error_prefix(err, "data.train")
               : 0;
}

void training_data_warn_changed(struct training_data *data, const struct session *s)
{
    struct error what = {0};
    int rc = 0;
    if (!world_local_rank(s->world) && dataset_check_unchanged(&data->train.data, &what))
        rc = error_prefix(&what, "data.train");
    else if (!world_local_rank(s->world) && dataset_check_unchanged(&data->valid.data, &what))
        rc = error_prefix(&what, "data.valid");
    if (world_agree(s->world, rc, &what) && !world_rank(s->world))
        log_warn(s->log,
                 "%s; to train on what it was, put that back, and go on from a checkpoint of an "
                 "earlier step (checkpoint.resume)",
                 what.text);
}
