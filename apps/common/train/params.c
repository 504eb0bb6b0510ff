/* apps/common/train/params.c: parameters by name. The layouts of the two plans may differ in every way: read puts a parameter
 * together, write deals it out. */
#include "apps/common/train/params.h"

#include <stdio.h>
#include <stdlib.h>

weir_status params_copy(weir_session *from, weir_session *to, const weir_plan *to_plan)
{
    weir_status status = WEIR_OK;
    for (int i = 0; !status && i < weir_plan_param_count(to_plan); i++) {
        weir_param_info info;
        if ((status = weir_plan_param(to_plan, i, &info)) || info.kind != WEIR_PARAMETER)
            continue;
        weir_array value = {.dtype = info.type.dtype, .shape = info.type.shape};
        value.data = malloc((size_t)weir_shape_count(&value.shape) * weir_dtype_bytes(value.dtype));
        if (!value.data)
            return WEIR_E_MEMORY;
        status = weir_session_read(from, info.name, &value);
        if (!status)
            status = weir_session_write(to, info.name, &value);
        free(value.data);
    }
    return status;
}
