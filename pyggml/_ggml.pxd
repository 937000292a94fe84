# C declarations of what pyggml uses of ggml 0.20, one block a header, names as in C.
# Nothing else belongs here.

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef extern from "ggml.h" nogil:
    enum:
        GGML_MAX_DIMS
        GGML_MAX_SRC
        GGML_MAX_NAME
        GGML_MAX_N_THREADS
        GGML_DEFAULT_GRAPH_SIZE
        GGML_N_TASKS_MAX

    enum ggml_status:
        GGML_STATUS_SUCCESS

    enum ggml_type:
        GGML_TYPE_F32
        GGML_TYPE_F16
        GGML_TYPE_Q8_0
        GGML_TYPE_Q4_K
        GGML_TYPE_I8
        GGML_TYPE_I16
        GGML_TYPE_I32
        GGML_TYPE_I64
        GGML_TYPE_F64
        GGML_TYPE_BF16

    enum ggml_prec:
        GGML_PREC_DEFAULT
        GGML_PREC_F32

    enum ggml_op:
        GGML_OP_NONE
        GGML_OP_RESHAPE
        GGML_OP_VIEW
        GGML_OP_MUL_MAT
        GGML_OP_OPT_STEP_ADAMW
        GGML_OP_OPT_STEP_SGD
        GGML_OP_CUSTOM

    enum ggml_op_pool:
        GGML_OP_POOL_MAX
        GGML_OP_POOL_AVG

    enum ggml_log_level:
        GGML_LOG_LEVEL_NONE
        GGML_LOG_LEVEL_DEBUG
        GGML_LOG_LEVEL_INFO
        GGML_LOG_LEVEL_WARN
        GGML_LOG_LEVEL_ERROR
        GGML_LOG_LEVEL_CONT

    enum ggml_tensor_flag:
        GGML_TENSOR_FLAG_INPUT
        GGML_TENSOR_FLAG_OUTPUT
        GGML_TENSOR_FLAG_PARAM
        GGML_TENSOR_FLAG_LOSS

    struct ggml_context:
        pass

    struct ggml_cgraph:
        pass

    struct ggml_init_params:
        size_t mem_size
        void * mem_buffer
        bint no_alloc

    struct ggml_tensor:
        ggml_type type
        ggml_backend_buffer * buffer
        int64_t ne[4]
        size_t nb[4]
        ggml_op op
        int32_t op_params[16]
        int32_t flags
        ggml_tensor * src[10]
        ggml_tensor * view_src
        size_t view_offs
        void * data
        char name[64]
        void * extra

    struct ggml_backend_buffer:
        pass

    ctypedef void (*ggml_abort_callback_t)(const char * error_message) noexcept
    ctypedef void (*ggml_log_callback)(ggml_log_level level, const char * text,
                                       void * user_data) noexcept

    ggml_abort_callback_t ggml_set_abort_callback(ggml_abort_callback_t callback)
    void ggml_log_set(ggml_log_callback log_callback, void * user_data)
    const char * ggml_version()
    const char * ggml_op_desc(const ggml_tensor * t)

    int64_t ggml_nelements(const ggml_tensor * tensor)
    int64_t ggml_time_us()
    size_t ggml_nbytes(const ggml_tensor * tensor)
    bint ggml_is_contiguous(const ggml_tensor * tensor)
    size_t ggml_tensor_overhead()
    int64_t ggml_blck_size(ggml_type type)
    size_t ggml_type_size(ggml_type type)
    size_t ggml_row_size(ggml_type type, int64_t ne)
    size_t ggml_quantize_chunk(ggml_type type, const float * src, void * dst, int64_t start,
                               int64_t nrows, int64_t n_per_row, const float * imatrix)

    ctypedef void (*ggml_to_float_t)(const void * x, float * y, int64_t k) noexcept

    struct ggml_type_traits:
        ggml_to_float_t to_float

    const ggml_type_traits * ggml_get_type_traits(ggml_type type)

    ggml_context * ggml_init(ggml_init_params params)
    void ggml_free(ggml_context * ctx)
    size_t ggml_used_mem(const ggml_context * ctx)
    size_t ggml_get_mem_size(const ggml_context * ctx)

    ggml_tensor * ggml_new_tensor(ggml_context * ctx, ggml_type type, int n_dims,
                                  const int64_t * ne)
    ggml_tensor * ggml_get_first_tensor(const ggml_context * ctx)
    ggml_tensor * ggml_get_next_tensor(const ggml_context * ctx, ggml_tensor * tensor)
    ggml_tensor * ggml_set_name(ggml_tensor * tensor, const char * name)
    void ggml_set_input(ggml_tensor * tensor)
    void ggml_set_output(ggml_tensor * tensor)
    void ggml_set_param(ggml_tensor * tensor)
    void ggml_set_loss(ggml_tensor * tensor)

    ggml_tensor * ggml_add(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_sub(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_mul(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_div(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_sqr(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_sqrt(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_log(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_softplus(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_sin(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_cos(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_sum(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_sum_rows(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_repeat_4d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, int64_t ne1,
                                 int64_t ne2, int64_t ne3)
    ggml_tensor * ggml_abs(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_sgn(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_neg(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_step(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_tanh(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_relu(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_sigmoid(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_silu(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_exp(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_mul_mat(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    void ggml_mul_mat_set_prec(ggml_tensor * a, ggml_prec prec)
    ggml_tensor * ggml_scale(ggml_context * ctx, ggml_tensor * a, float s)
    ggml_tensor * ggml_scale_bias(ggml_context * ctx, ggml_tensor * a, float s, float b)
    ggml_tensor * ggml_cont(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_cast(ggml_context * ctx, ggml_tensor * a, ggml_type type)
    ggml_tensor * ggml_get_rows(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_reshape_4d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, int64_t ne1,
                                  int64_t ne2, int64_t ne3)
    ggml_tensor * ggml_view_4d(ggml_context * ctx, ggml_tensor * a, int64_t ne0, int64_t ne1,
                               int64_t ne2, int64_t ne3, size_t nb1, size_t nb2, size_t nb3,
                               size_t offset)
    ggml_tensor * ggml_permute(ggml_context * ctx, ggml_tensor * a, int axis0, int axis1,
                               int axis2, int axis3)
    ggml_tensor * ggml_soft_max(ggml_context * ctx, ggml_tensor * a)
    ggml_tensor * ggml_pool_2d(ggml_context * ctx, ggml_tensor * a, ggml_op_pool op, int k0,
                               int k1, int s0, int s1, float p0, float p1)
    ggml_tensor * ggml_acc(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b, size_t nb1,
                           size_t nb2, size_t nb3, size_t offset)
    ggml_tensor * ggml_set(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b, size_t nb1,
                           size_t nb2, size_t nb3, size_t offset)
    ggml_tensor * ggml_concat(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b, int dim)
    ggml_tensor * ggml_get_rows(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_im2col(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b, int s0,
                              int s1, int p0, int p1, int d0, int d1, bint is_2D,
                              ggml_type dst_type)
    ggml_tensor * ggml_diag_mask_inf(ggml_context * ctx, ggml_tensor * a, int n_past)
    ggml_tensor * ggml_rms_norm(ggml_context * ctx, ggml_tensor * a, float eps)
    ctypedef void (*ggml_custom_op_t)(ggml_tensor * dst, int ith, int nth,
                                      void * userdata) noexcept
    ggml_tensor * ggml_custom_4d(ggml_context * ctx, ggml_type type, int64_t ne0, int64_t ne1,
                                 int64_t ne2, int64_t ne3, ggml_tensor ** args, int n_args,
                                 ggml_custom_op_t fun, int n_tasks, void * userdata)
    ggml_tensor * ggml_cross_entropy_loss(ggml_context * ctx, ggml_tensor * a, ggml_tensor * b)
    ggml_tensor * ggml_opt_step_adamw(ggml_context * ctx, ggml_tensor * a, ggml_tensor * grad,
                                      ggml_tensor * m, ggml_tensor * v, ggml_tensor * params)
    ggml_tensor * ggml_opt_step_sgd(ggml_context * ctx, ggml_tensor * a, ggml_tensor * grad,
                                    ggml_tensor * params)

    void ggml_build_forward_expand(ggml_cgraph * cgraph, ggml_tensor * tensor)
    void ggml_build_backward_expand(ggml_context * ctx, ggml_cgraph * cgraph,
                                    ggml_tensor ** grad_accs)
    ggml_cgraph * ggml_new_graph_custom(ggml_context * ctx, size_t size, bint grads)
    ggml_cgraph * ggml_graph_dup(ggml_context * ctx, ggml_cgraph * cgraph, bint force_grads)
    ggml_tensor * ggml_graph_get_grad(const ggml_cgraph * cgraph, const ggml_tensor * node)
    int ggml_graph_n_nodes(ggml_cgraph * cgraph)
    ggml_tensor * ggml_graph_node(ggml_cgraph * cgraph, int i)
    size_t ggml_graph_overhead_custom(size_t size, bint grads)

    struct ggml_threadpool_params:
        int n_threads
        uint32_t poll

    struct ggml_threadpool:
        pass

    ggml_threadpool_params ggml_threadpool_params_default(int n_threads)

cdef extern from "ggml-backend.h" nogil:
    struct ggml_backend_buffer_type:
        pass
    struct ggml_backend:
        pass
    struct ggml_backend_device:
        pass
    struct ggml_backend_reg:
        pass
    struct ggml_backend_sched:
        pass
    ctypedef ggml_backend_buffer_type * ggml_backend_buffer_type_t
    ctypedef ggml_backend_buffer * ggml_backend_buffer_t
    ctypedef ggml_backend * ggml_backend_t
    ctypedef ggml_backend_device * ggml_backend_dev_t
    ctypedef ggml_backend_reg * ggml_backend_reg_t
    ctypedef ggml_backend_sched * ggml_backend_sched_t

    struct ggml_backend_feature:
        const char * name
        const char * value
    ctypedef ggml_backend_feature * (*ggml_backend_get_features_t)(ggml_backend_reg_t reg)

    void ggml_backend_buffer_free(ggml_backend_buffer_t buffer)
    size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer)
    void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
    void * ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer)
    bint ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer)
    ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft,
                                                         size_t size)
    ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, ggml_tensor * tensor,
                                          void * addr)

    void ggml_backend_free(ggml_backend_t backend)
    ggml_backend_buffer_type_t ggml_backend_get_default_buffer_type(ggml_backend_t backend)
    const char * ggml_backend_name(ggml_backend_t backend)

    const char * ggml_backend_dev_name(ggml_backend_dev_t device)
    const char * ggml_backend_dev_description(ggml_backend_dev_t device)
    void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t * free, size_t * total)
    ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t device)
    void * ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char * name)
    size_t ggml_backend_dev_count()
    ggml_backend_dev_t ggml_backend_dev_get(size_t index)

    ctypedef bint (*ggml_backend_sched_eval_callback)(ggml_tensor * t, bint ask,
                                                      void * user_data) noexcept
    ggml_backend_sched_t ggml_backend_sched_new(
        ggml_backend_t * backends, ggml_backend_buffer_type_t * bufts, int n_backends,
        size_t graph_size, bint parallel, bint op_offload)
    void ggml_backend_sched_free(ggml_backend_sched_t sched)
    size_t ggml_backend_sched_get_buffer_size(ggml_backend_sched_t sched, ggml_backend_t backend)
    bint ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, ggml_cgraph * graph)
    ggml_status ggml_backend_sched_graph_compute(ggml_backend_sched_t sched, ggml_cgraph * graph)
    void ggml_backend_sched_reset(ggml_backend_sched_t sched)
    void ggml_backend_sched_set_eval_callback(
        ggml_backend_sched_t sched, ggml_backend_sched_eval_callback callback, void * user_data)

cdef extern from "ggml-alloc.h" nogil:
    ggml_backend_buffer * ggml_backend_alloc_ctx_tensors_from_buft(
        ggml_context * ctx, ggml_backend_buffer_type_t buft)

cdef extern from "ggml-cpu.h" nogil:
    ggml_backend_t ggml_backend_cpu_init()
    void ggml_backend_cpu_set_n_threads(ggml_backend_t backend_cpu, int n_threads)
    void ggml_backend_cpu_set_threadpool(ggml_backend_t backend_cpu,
                                         ggml_threadpool * threadpool)
    ggml_threadpool * ggml_threadpool_new(ggml_threadpool_params * params)
    void ggml_threadpool_free(ggml_threadpool * threadpool)

cdef extern from "ggml-opt.h" nogil:
    struct ggml_opt_context:
        pass
    struct ggml_opt_result:
        pass
    ctypedef ggml_opt_context * ggml_opt_context_t
    ctypedef ggml_opt_result * ggml_opt_result_t

    enum ggml_opt_loss_type:
        GGML_OPT_LOSS_TYPE_SUM

    enum ggml_opt_build_type:
        GGML_OPT_BUILD_TYPE_FORWARD
        GGML_OPT_BUILD_TYPE_GRAD
        GGML_OPT_BUILD_TYPE_OPT

    enum ggml_opt_optimizer_type:
        GGML_OPT_OPTIMIZER_TYPE_ADAMW
        GGML_OPT_OPTIMIZER_TYPE_SGD

    struct ggml_opt_adamw_params:
        float alpha
        float beta1
        float beta2
        float eps
        float wd

    struct ggml_opt_sgd_params:
        float alpha
        float wd

    struct ggml_opt_optimizer_params:
        ggml_opt_adamw_params adamw
        ggml_opt_sgd_params sgd

    struct ggml_opt_dataset:
        pass
    ctypedef ggml_opt_dataset * ggml_opt_dataset_t

    ggml_opt_dataset_t ggml_opt_dataset_init(
        ggml_type type_data, ggml_type type_label, int64_t ne_datapoint, int64_t ne_label,
        int64_t ndata, int64_t ndata_shard)
    void ggml_opt_dataset_free(ggml_opt_dataset_t dataset)
    ggml_tensor * ggml_opt_dataset_data(ggml_opt_dataset_t dataset)
    ggml_tensor * ggml_opt_dataset_labels(ggml_opt_dataset_t dataset)
    void ggml_opt_dataset_shuffle(ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset,
                                  int64_t idata)
    void ggml_opt_dataset_get_batch_host(ggml_opt_dataset_t dataset, void * data_batch,
                                         size_t nb_data_batch, void * labels_batch,
                                         int64_t ibatch)

    ctypedef ggml_opt_optimizer_params (*ggml_opt_get_optimizer_params)(void * userdata) noexcept

    ggml_opt_optimizer_params ggml_opt_get_default_optimizer_params(void * userdata)

    struct ggml_opt_params:
        ggml_backend_sched_t backend_sched
        ggml_context * ctx_compute
        ggml_tensor * inputs
        ggml_tensor * outputs
        ggml_opt_loss_type loss_type
        ggml_opt_build_type build_type
        int32_t opt_period
        ggml_opt_get_optimizer_params get_opt_pars
        void * get_opt_pars_ud
        ggml_opt_optimizer_type optimizer

    ggml_opt_params ggml_opt_default_params(ggml_backend_sched_t backend_sched,
                                            ggml_opt_loss_type loss_type)
    ggml_opt_context_t ggml_opt_init(ggml_opt_params params)
    void ggml_opt_reset(ggml_opt_context_t opt_ctx, bint optimizer)
    bint ggml_opt_static_graphs(ggml_opt_context_t opt_ctx)
    ggml_opt_optimizer_type ggml_opt_context_optimizer_type(ggml_opt_context_t opt_ctx)
    const char * ggml_opt_optimizer_name(ggml_opt_optimizer_type optimizer)
    void ggml_opt_prepare_alloc(ggml_opt_context_t opt_ctx, ggml_context * ctx_compute,
                                ggml_cgraph * gf, ggml_tensor * inputs, ggml_tensor * outputs)
    void ggml_opt_free(ggml_opt_context_t opt_ctx)
    ggml_tensor * ggml_opt_loss(ggml_opt_context_t opt_ctx)
    ggml_tensor * ggml_opt_grad_acc(ggml_opt_context_t opt_ctx, ggml_tensor * node)
    void ggml_opt_alloc(ggml_opt_context_t opt_ctx, bint backward)
    void ggml_opt_eval(ggml_opt_context_t opt_ctx, ggml_opt_result_t result)
