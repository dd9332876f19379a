/* reference.c - see reference.h.  Touvron et al. 2023 (arXiv 2302.13971), Jiang et al. 2024
 * (2401.04088), Fedus et al. 2021 (2101.03961). */
#include "tests/unit/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void reference_take(struct reference *r, const struct session *s)
{
    int count = 0;
    for (int u = 0; u < s->units->count; u++)
        count += s->units->flat[u].tensors;
    *r = (struct reference){.config = &s->config.model};
    r->tensor = array_make((size_t)count, sizeof *r->tensor);
    r->value = array_make((size_t)count, sizeof *r->value);
    for (int u = 0; u < s->units->count; u++)
        for (int t = 0; t < s->units->flat[u].tensors; t++) {
            const struct flat_tensor *tensor = &s->units->flat[u].tensor[t];
            const float *from = rig_state(s, u, RIG_MASTER) + tensor->offset;
            double *to = array_make((size_t)tensor->elems, sizeof *to);
            for (int64_t i = 0; i < tensor->elems; i++)
                to[i] = from[i];
            r->tensor[r->tensors] = *tensor;
            r->value[r->tensors++] = to;
        }
}

void reference_free(struct reference *r)
{
    for (int t = 0; t < r->tensors; t++)
        free(r->value[t]);
    free(r->value);
    free(r->tensor);
    free(r->choice);
}

double *reference_find(const struct reference *r, const char *name)
{
    for (int t = 0; t < r->tensors; t++)
        if (!strcmp(r->tensor[t].name, name))
            return r->value[t];
    return NULL;
}

static const double *of_layer(const struct reference *r, int64_t layer, const char *name)
{
    char full[FLAT_NAME];
    snprintf(full, sizeof full, "layers.%d.%s", (int)layer, name);
    return reference_find(r, full);
}

/* y [out] = w [out, in] x (+ y) */
static void multiply(double *y, const double *w, const double *x, int64_t out, int64_t in, int add)
{
    for (int64_t o = 0; o < out; o++) {
        double sum = add ? y[o] : 0;
        for (int64_t i = 0; i < in; i++)
            sum += w[o * in + i] * x[i];
        y[o] = sum;
    }
}

static void norm(double *y, const double *x, const double *w, int64_t size, double eps)
{
    double sum = 0;
    for (int64_t i = 0; i < size; i++)
        sum += x[i] * x[i];
    for (int64_t i = 0; i < size; i++)
        y[i] = x[i] / sqrt(sum / (double)size + eps) * w[i];
}

/* Pairs (i, i + d/2) of each head turned by position * theta^(-2i/d). */
static void rotate(double *x, int64_t heads, int64_t d, int64_t position, double theta)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < d / 2; i++) {
            double angle = (double)position * pow(theta, -2.0 * (double)i / (double)d);
            double a = x[h * d + i], b = x[h * d + d / 2 + i];
            x[h * d + i] = a * cos(angle) - b * sin(angle);
            x[h * d + d / 2 + i] = b * cos(angle) + a * sin(angle);
        }
}

/* One query head at position t over the keys and values up to there, of row length kv. */
static void attend(double *out, const double *q, const double *k, const double *v, int64_t t,
                   int64_t kv, int64_t d)
{
    double *score = array_make((size_t)t + 1, sizeof *score), total = 0;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t j = 0; j <= t; j++) {
        for (int64_t i = 0; i < d; i++)
            score[j] += q[i] * k[j * kv + i] / sqrt((double)d);
        score[j] = exp(score[j]);
        total += score[j];
    }
    for (int64_t j = 0; j <= t; j++)
        for (int64_t i = 0; i < d; i++)
            out[i] += score[j] / total * v[j * kv + i];
    free(score);
}

/* x [seq, hidden] += o(attention(norm1(x))) */
static void attention(const struct reference *r, int64_t layer, double *x, int64_t seq)
{
    const struct config_model *c = r->config;
    int64_t d = c->head_dim, q_size = c->heads * d, kv = c->kv_heads * d;
    double *h = array_make((size_t)c->hidden, sizeof *h),
           *o = array_make((size_t)q_size, sizeof *o);
    double *q = array_make((size_t)(seq * q_size), sizeof *q);
    double *k = array_make((size_t)(seq * kv), sizeof *k);
    double *v = array_make((size_t)(seq * kv), sizeof *v);
    for (int64_t t = 0; t < seq; t++) {
        norm(h, x + t * c->hidden, of_layer(r, layer, "norm1"), c->hidden, c->norm_eps);
        multiply(q + t * q_size, of_layer(r, layer, "attn.q"), h, q_size, c->hidden, 0);
        multiply(k + t * kv, of_layer(r, layer, "attn.k"), h, kv, c->hidden, 0);
        multiply(v + t * kv, of_layer(r, layer, "attn.v"), h, kv, c->hidden, 0);
        rotate(q + t * q_size, c->heads, d, t, c->rope.theta);
        rotate(k + t * kv, c->kv_heads, d, t, c->rope.theta);
    }
    for (int64_t t = 0; t < seq; t++) {
        for (int64_t head = 0; head < c->heads; head++) {
            int64_t group = head / (c->heads / c->kv_heads);
            attend(o + head * d, q + t * q_size + head * d, k + group * d, v + group * d, t, kv, d);
        }
        multiply(x + t * c->hidden, of_layer(r, layer, "attn.o"), o, c->hidden, q_size, 1);
    }
    free(h);
    free(o);
    free(q);
    free(k);
    free(v);
}

/* y [hidden] += weight * down(silu(gate(h)) * up(h)) */
static void swiglu(const struct config_model *c, double *y, const double *h, const double *gate_w,
                   const double *up_w, const double *down_w, double weight)
{
    double *gate = array_make((size_t)c->ffn, sizeof *gate), *up = array_make((size_t)c->ffn, 8);
    multiply(gate, gate_w, h, c->ffn, c->hidden, 0);
    multiply(up, up_w, h, c->ffn, c->hidden, 0);
    for (int64_t i = 0; i < c->ffn; i++)
        gate[i] = weight * gate[i] / (1 + exp(-gate[i])) * up[i];
    multiply(y, down_w, gate, c->hidden, c->ffn, 1);
    free(gate);
    free(up);
}

/* x [hidden] += feed_forward(norm2(x)) */
static void feed_forward(const struct reference *r, int64_t layer, double *x)
{
    const struct config_model *c = r->config;
    double *h = array_make((size_t)c->hidden, sizeof *h);
    norm(h, x, of_layer(r, layer, "norm2"), c->hidden, c->norm_eps);
    swiglu(c, x, h, of_layer(r, layer, "mlp.gate"), of_layer(r, layer, "mlp.up"),
           of_layer(r, layer, "mlp.down"), 1);
    free(h);
}

/* The experts' probabilities. */
static void softmax(double *p, int64_t count)
{
    double total = 0;
    for (int64_t e = 0; e < count; e++)
        total += p[e] = exp(p[e]);
    for (int64_t e = 0; e < count; e++)
        p[e] /= total;
}

/* The k-th choice of a token: of the largest probability among experts that are not taken. */
static int32_t choose(struct reference *r, const double *p, const char *taken)
{
    int32_t best = -1;
    for (int32_t e = 0; e < r->config->experts.count; e++)
        if (!taken[e] && (best < 0 || p[e] > p[best]))
            best = e;
    if (r->next == r->choices) {
        r->choice = realloc(r->choice, (size_t)(r->choices + 1) * sizeof *r->choice);
        r->choice[r->choices++] = best;
    }
    return r->choice[r->next++];
}

/* x [hidden] += the sum of what a token's experts make of norm2(x).  load and mass [experts] take
 * in how often each was chosen, and its probability. */
static void mixture(struct reference *r, int64_t layer, double *x, double *load, double *mass)
{
    const struct config_model *c = r->config;
    int64_t count = c->experts.count, chosen = c->experts.per_token, size = c->ffn * c->hidden;
    const double *gate_up = of_layer(r, layer, "mlp.experts.gate_up");
    const double *down = of_layer(r, layer, "mlp.experts.down");
    double *h = array_make((size_t)c->hidden, sizeof *h), *p = array_make((size_t)count, sizeof *p);
    int32_t *expert = array_make((size_t)chosen, sizeof *expert);
    char *taken = array_make((size_t)count, 1);
    double sum = 0;
    norm(h, x, of_layer(r, layer, "norm2"), c->hidden, c->norm_eps);
    multiply(p, of_layer(r, layer, "mlp.router"), h, count, c->hidden, 0);
    softmax(p, count);
    for (int64_t k = 0; k < chosen; k++) {
        expert[k] = choose(r, p, taken);
        taken[expert[k]] = 1;
        load[expert[k]]++;
        sum += p[expert[k]];
    }
    for (int64_t k = 0; k < chosen; k++) {
        const double *own = gate_up + expert[k] * 2 * size;
        swiglu(c, x, h, own, own + size, down + expert[k] * size,
               p[expert[k]] / (c->experts.norm_topk_prob ? sum : 1));
    }
    for (int64_t e = 0; e < count; e++)
        mass[e] += p[e];
    free(h);
    free(p);
    free(expert);
    free(taken);
}

/* The mixtures of a sequence, and its load balancing loss, of tokens with targets: experts * (sum
 * over e of the share of such tokens at e, times the mean of its probability). */
static void mixtures(struct reference *r, int64_t layer, double *x, const int32_t *targets,
                     int64_t seq)
{
    const struct config_experts *e = &r->config->experts;
    double *load[2], *mass[2], count = 0; /* of tokens without a target, and with one */
    for (int i = 0; i < 2; i++) {
        load[i] = array_make((size_t)e->count, sizeof **load);
        mass[i] = array_make((size_t)e->count, sizeof **mass);
    }
    for (int64_t t = 0; t < seq; t++) {
        int counts = targets[t] >= 0;
        mixture(r, layer, x + t * r->config->hidden, load[counts], mass[counts]);
        count += counts;
    }
    for (int64_t i = 0; i < e->count && count > 0; i++)
        r->balance += e->aux_loss / (double)r->config->layers * count * (double)e->count *
                      load[1][i] / count * mass[1][i] / count;
    for (int i = 0; i < 2; i++) {
        free(load[i]);
        free(mass[i]);
    }
}

static double cross_entropy(const double *logits, int64_t vocab, int32_t target)
{
    double total = 0;
    for (int64_t i = 0; i < vocab; i++)
        total += exp(logits[i]);
    return log(total) - logits[target];
}

static double sequence_loss(struct reference *r, const int32_t *tokens, const int32_t *targets,
                            int64_t seq, double *out)
{
    const struct config_model *c = r->config;
    const double *table = reference_find(r, "embed"), *head = reference_find(r, "head");
    double *x = array_make((size_t)(seq * c->hidden), sizeof *x), loss = 0;
    double *h = array_make((size_t)c->hidden, sizeof *h);
    double *logits = array_make((size_t)c->vocab, sizeof *logits);
    for (int64_t t = 0; t < seq; t++)
        memcpy(x + t * c->hidden, table + tokens[t] * c->hidden, (size_t)c->hidden * sizeof *x);
    for (int64_t layer = 0; layer < c->layers; layer++) {
        attention(r, layer, x, seq);
        if (c->experts.count)
            mixtures(r, layer, x, targets, seq);
        for (int64_t t = 0; t < seq && !c->experts.count; t++)
            feed_forward(r, layer, x + t * c->hidden);
    }
    for (int64_t t = 0; t < seq; t++) {
        if (!out && targets[t] < 0)
            continue;
        norm(h, x + t * c->hidden, reference_find(r, "norm"), c->hidden, c->norm_eps);
        multiply(logits, head ? head : table, h, c->vocab, c->hidden, 0);
        loss += targets[t] < 0 ? 0 : cross_entropy(logits, c->vocab, targets[t]);
        if (out)
            memcpy(out + t * c->vocab, logits, (size_t)c->vocab * sizeof *out);
    }
    free(x);
    free(h);
    free(logits);
    return loss;
}

double reference_loss(struct reference *r, const int32_t *tokens, const int32_t *targets,
                      int64_t rows, int64_t seq, double *logits)
{
    double loss = 0;
    r->next = 0;
    r->balance = 0;
    for (int64_t row = 0; row < rows; row++)
        loss += sequence_loss(r, tokens + row * seq, targets + row * seq, seq,
                              logits ? logits + row * seq * r->config->vocab : NULL);
    return loss;
}
