/* The optimizer's step on the weights of one network: one rule, with the clipping of gradients.
 *
 * A node of a graph calls it, or whoever holds gradients that were added up or given. */
#ifndef PG_STEPPER_H
#define PG_STEPPER_H

#include "ggml.h"
#include "steps.h"

enum {
    PG_CLIP_NONE,
    PG_CLIP_VALUE,  /* every element of a gradient is limited to this size */
    PG_CLIP_NORM,   /* the gradient of a weight is scaled down to this norm */
    PG_CLIP_GLOBAL, /* all gradients together are */
};

/* What a step works on. params: the seven numbers that an optimizer gives, in its order. */
typedef struct pg_stepped {
    pg_int        n;
    float *       w;
    const float * g;
    const float * params;
    float *       state[3]; /* in the order of steps.h, without gaps */
} pg_stepped;

typedef struct pg_stepper {
    int          rule;
    int          clip;
    double       limit;
    double       scale;  /* of gradients, before they are clipped */
    int          n;      /* how many weights there are */
    int          met;    /* and how many were met; see below */
    pg_stepped * waiting;
} pg_stepper;

/* Room for n weights; PG_ENOMEM. Rule, clip, limit and scale are the caller's to set. */
int  pg_stepper_init(pg_stepper * s, int n);
void pg_stepper_free(pg_stepper * s);
/* Before the first weight of a step. */
void pg_stepper_begin(pg_stepper * s);
/* Step on one weight. Where all gradients are clipped together nothing moves until the last weight
 * is met: gradients must stay where they are until then. The norm does not depend on the number
 * of threads. */
void pg_stepper_step(pg_stepper * s, const pg_stepped * t);

/* A custom node whose user data is a stepper; src: weight, gradient, params, states. */
void pg_node_stepper(struct ggml_tensor * dst, int ith, int nth, void * stepper);

/* What kernels want to know, from an optimizer's parameters; places states as steps.h has them. */
pg_step_params pg_step_params_of(int rule, const float * params);
void           pg_step_states(int rule, const float * params, float * const given[3], float * s[3]);

#endif
