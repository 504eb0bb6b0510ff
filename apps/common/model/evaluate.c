/* apps/common/model/evaluate.c: see the header. How many steps there were is read with their sum: a run may be ended by a
 * stop, on whichever rank it was called. */
#include "apps/common/model/evaluate.h"

#include <math.h>

weir_status evaluate(void *ctx, weir_session *session, double *loss)
{
    const int steps = gpt_eval_steps(ctx);
    float sum[2] = {0};
    weir_array value = {sum, WEIR_F32, {1, {2}}};
    weir_status status = weir_session_write(session, GPT_EVAL_LOSS, &value);
    status = status ? status : weir_session_run(session, steps, .program = GPT_EVAL);
    status = status ? status : weir_session_read(session, GPT_EVAL_LOSS, &value);
    *loss = sum[1] == (float)steps ? (double)sum[0] / steps : NAN;
    return status;
}
