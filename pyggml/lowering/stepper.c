#include "stepper.h"

#include <math.h>
#include <stdlib.h>

#include "pool.h"

int pg_stepper_init(pg_stepper * s, int n) {
    s->n       = n;
    s->met     = 0;
    s->waiting = calloc(n > 0 ? (size_t) n : 1, sizeof(*s->waiting));
    return s->waiting == NULL ? PG_ENOMEM : PG_OK;
}

void pg_stepper_free(pg_stepper * s) {
    free(s->waiting);
    s->waiting = NULL;
}

void pg_stepper_begin(pg_stepper * s) { s->met = 0; }

pg_step_params pg_step_params_of(int rule, const float * p) {
    pg_step_params q = { 0 };
    q.rule       = rule;
    q.grad_scale = 1.0f;
    q.lr         = p[0];
    if (rule == PG_STEP_ADAM) {
        q.beta1        = p[1];
        q.beta2        = p[2];
        q.eps          = p[3];
        q.weight_decay = p[4];
        q.h1           = p[5];
        q.h2           = p[6];
        return q;
    }
    q.weight_decay = p[1];
    switch (rule) {
    case PG_STEP_MOMENTUM:
        q.momentum = p[2];
        q.nesterov = p[3] != 0.0f;
        break;
    case PG_STEP_RMSPROP:
        q.crho     = p[2];
        q.momentum = p[3];
        q.eps      = p[4];
        q.centered = p[5] != 0.0f;
        break;
    case PG_STEP_ADAGRAD:
        q.eps = p[2];
        break;
    case PG_STEP_LION:
        q.rest1 = p[2];
        q.rest2 = p[3];
        break;
    default:
        break;
    }
    return q;
}

void pg_step_states(int rule, const float * params, float * const given[3], float * s[3]) {
    s[0] = given[0];
    s[1] = given[1];
    s[2] = given[2];
    if (rule == PG_STEP_RMSPROP && params[3] == 0.0f) {
        s[1] = NULL;
        s[2] = given[1];
    }
}

static void step(const pg_stepper * s, const pg_stepped * t, double scale, pg_int begin, pg_int end,
                 void (*run)(const pg_step_params *, pg_int, float *, const float *, float *, float *,
                             float *)) {
    pg_step_params p = pg_step_params_of(s->rule, t->params);
    float *        state[3];
    pg_step_states(s->rule, t->params, t->state, state);
    for (int i = 0; i < 3; ++i) {
        state[i] = state[i] == NULL ? NULL : state[i] + begin;
    }
    p.grad_scale = (float) scale;
    p.clip       = s->clip == PG_CLIP_VALUE ? (float) s->limit : 0.0f;
    run(&p, end - begin, t->w + begin, t->g + begin, state[0], state[1], state[2]);
}

/* The scale that brings gradients with a sum of squares within the limit; NaN if the sum is. */
static double within(const pg_stepper * s, double squares) {
    const double norm = s->scale * sqrt(squares);
    return norm <= s->limit ? s->scale : s->scale * (s->limit / norm);
}

void pg_stepper_step(pg_stepper * s, const pg_stepped * t) {
    if (s->clip == PG_CLIP_GLOBAL) {
        double squares = 0.0;
        s->waiting[s->met++] = *t;
        if (s->met < s->n) {
            return;
        }
        for (int i = 0; i < s->n; ++i) {
            squares += pg_sum_squares(s->waiting[i].n, s->waiting[i].g);
        }
        const double scale = within(s, squares);
        for (int i = 0; i < s->n; ++i) {
            step(s, &s->waiting[i], scale, 0, s->waiting[i].n, pg_step);
        }
        s->met = 0;
        return;
    }
    const double scale =
        s->clip == PG_CLIP_NORM ? within(s, pg_sum_squares(t->n, t->g)) : s->scale;
    step(s, t, scale, 0, t->n, pg_step);
}

void pg_node_stepper(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    pg_stepper * s = userdata;
    pg_stepped   t = { 0 };
    t.n      = ggml_nelements(dst);
    t.w      = dst->src[0]->data;
    t.g      = dst->src[1]->data;
    t.params = dst->src[2]->data;
    for (int i = 0; i < 3; ++i) {
        t.state[i] = dst->src[3 + i] == NULL ? NULL : dst->src[3 + i]->data;
    }
    if (nth == 1) {
        pg_stepper_step(s, &t);
        return;
    }
    /* ggml's own threads wait by spinning: the pool would have to share their cores. */
    if (s->clip <= PG_CLIP_VALUE) {
        pg_int begin, end;
        pg_part_range(t.n, 64, nth, ith, &begin, &end);
        step(s, &t, s->scale, begin, end, pg_step1);
    } else if (ith == 0) {
        pg_set_thread_limit(1);
        pg_stepper_step(s, &t);
        pg_set_thread_limit(0);
    }
}
