/* weights.h - the rank's shard of the state: initial values, and checkpoints of it.
 *
 * Values are functions of (seed, tensor name, index), never of the layout.
 */
#ifndef TRIREME_TRAIN_WEIGHTS_H
#define TRIREME_TRAIN_WEIGHTS_H

#include "io/checkpoint.h"
#include "train/session.h"

/* Fill parameters from the seed and clear the optimizer's state.  Not collective.  Returns 0, or
 * -1 with err set. */
int weights_init(struct session *session, struct error *err);

/* Fill parameters from the safetensors files of config.model_path, or from the checkpoint there or
 * the newest of the run there, adapters from the files of lora.path, each rank what it holds, and
 * clear the optimizer's state; what no folder has as weights_init().  Each rank reads its parts, or
 * one of each node reads them for all there (config.model_loading).  Every tensor of the model has
 * to be there, of its shape, and no others but tables and masks that are computed here.
 * Collective, and what it returns is the rank's own: 0, or -1 with err naming file and tensor. */
int weights_import(struct session *session, struct error *err);

/* Would weights_import() succeed?  Looks at names and shapes, not at numbers.  Not collective.
 * Returns 0, or -1 with err set. */
int weights_import_check(struct session *session, struct error *err);

/* What a checkpoint of the session holds. */
enum weights_saved {
    WEIGHTS_ALL,    /* all tensors */
    WEIGHTS_TRAINED /* adapters and what else is trained; of frozen tensors only where they are */
};

/* Choose what the next checkpoint holds, by config checkpoint.frozen.  It can only say where frozen
 * tensors are as long as the files of config.model_path have the session's base_hash.  Rank 0
 * decides, and warns where they no longer have it.  Collective. */
enum weights_saved weights_choose_saved(struct session *session);

/* In a model with adapters set the session's base_hash to that of the files of config.model_path;
 * to be called before they are read, so that files which are replaced later have another.  For rank
 * 0. 0, or -1 with err set. */
int weights_note_base(struct session *session, struct error *err);

/* Hash the weights in a folder, as text, "" where it has none; 0, or -1 with err set. */
int weights_folder_hash(const char *folder, char hash[WEIGHTS_HASH], struct error *err);

/* List the pieces that this rank saves: its share of parameters (fp32 masters) and optimizer state,
 * as "model/NAME" and, for each of the optimizer's slots, "optimizer/SLOT/NAME", such as
 * "optimizer/exp_avg/layers.0.attn.q".  Replicas divide a shard among them.  Returns how many;
 * *pieces is for weights_pieces_free(), and its data points into the session; on a GPU it is
 * fetched while saving. */
int weights_pieces(struct session *session, enum weights_saved saved,
                   struct checkpoint_piece **pieces);
void weights_pieces_free(struct checkpoint_piece *pieces, int count);

/* Load the rank's shard from a checkpoint: parameters, and the optimizer's state if the session
 * trains.  Frozen tensors that the checkpoint only refers to are read from config.model_path, whose
 * files must have the hash that it names, which becomes the session's base_hash.  frozen: the
 * patterns by which tensors were frozen when the checkpoint was written, or NULL: their optimizer
 * state, which it does not hold, becomes zero.  Collective where frozen tensors are read and
 * config.model_loading is node; what it returns is the rank's own: 0, or -1 with err set. */
int weights_load(struct session *session, struct checkpoint *checkpoint, const char *frozen,
                 struct error *err);

/* Compare the weights of ranks that hold the same part of a tensor.  Collective; 0, or -1 on every
 * rank with err naming a tensor that differs and two ranks that have it. */
int weights_compare_ranks(struct session *session, struct error *err);

#endif
