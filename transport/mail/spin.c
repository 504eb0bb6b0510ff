/* transport/mail/spin.c: see spin.h. */
#include "transport/mail/spin.h"

/* A wake-up in ten takes longer than wake_ns where nine steps down undo one up. */
#define STEP 32
#define UP 9
#define VAIN_MAX 30

static int64_t longer(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t spin_until(const struct spin *spin, int64_t start)
{
    const int64_t ns = longer(spin->wake_ns * (spin->soon ? SPIN_LONG : 1) >> spin->vain, spin->least_ns);
    return ns > SPIN_ALWAYS - start ? SPIN_ALWAYS : start + ns;
}

static void learn(struct spin *spin, int64_t took)
{
    const int64_t step = spin->wake_ns / STEP + 1;
    spin->wake_ns += took > spin->wake_ns ? UP * step : -step;
    spin->wake_ns = longer(spin->wake_ns < SPIN_WAKE_MAX_NS ? spin->wake_ns : SPIN_WAKE_MAX_NS, spin->least_ns);
}

void spin_slept(struct spin *spin, int64_t start, int64_t called, int64_t now)
{
    if (!spin->wake_ns)
        return;
    if (called > start)
        learn(spin, now - called);
    const int64_t waited = (called > start && called < now ? called : now - spin->wake_ns) - start;
    spin->soon = waited < SPIN_LONG * spin->wake_ns;
    spin->vain = spin->soon ? 0 : spin->vain < VAIN_MAX ? spin->vain + 1 : VAIN_MAX;
}
