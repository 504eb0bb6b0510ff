/* apps/weir/show_picture.h: weir show --svg and --dot: a plan as a picture. */
#ifndef APPS_WEIR_SHOW_PICTURE_H
#define APPS_WEIR_SHOW_PICTURE_H

#include <stdbool.h>
#include <weir/weir.h>

struct picture {
    const char *dot, *svg; /* files; NULL: none */
    bool every;            /* each actor; else what stages do in each phase */
};

/* Draws the plan into the file, which is whole or not there: a signal, a full disk or a failing dot leave the old one. The
 * exit status, after reporting; a signal ends the process. */
int show_picture(const weir_plan *plan, const struct picture *picture);

#endif
