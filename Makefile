# weir's build. `make help` lists the targets.
#
#     make test                                  all suites; what is missing is installed first
#     make test SUITES="test_plan test_session"  these only
#     make test SAN=address,undefined            under sanitizers; or SAN=thread
#     make test FULL=1                           all of each kind of thing, which takes several times as long
#     make all CC=clang OPT="-O2"                another compiler, other flags; what they change is built again
#     make all PORTABLE=1                        for any x86-64, with kernels for newer ones (kernels/table/levels.c)
#
# One Makefile for all folders: a library module is a .c file below one of ROOMS, a suite is a test_<name>.c below
# tests/, where it mirrors what it tests, a fuzz target is tests/fuzz/fuzz_<name>.c, an example is
# apps/examples/<name>.c; none of them is listed here. Objects lie in
# build/<variant>/ under the names of their sources, programs in build/bin/. The processor's own instructions are used
# (-march=native): build where it runs, or for all processors of the machine's kind with PORTABLE=1, in build/portable/.

comma    := ,
SAN      ?=
PORTABLE ?=
FULL     ?=
VARIANT  := $(if $(SAN),san-$(subst $(comma),-,$(SAN)),$(if $(PORTABLE),portable,release))
OUT      := build/$(VARIANT)
BIN      := $(if $(SAN)$(PORTABLE),$(OUT)/bin,build/bin)

ifeq ($(origin CC),default)
CC       := gcc
endif
OPT      ?= $(if $(SAN),-O1 -march=native,-O3 $(if $(PORTABLE),,-march=native) -fno-math-errno -fno-trapping-math)
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror
SANITIZE := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
INCLUDE  := -Iinclude -I.
# The library exports the names that its public headers declare (WEIR_C_BEGIN); it may be a part of a shared object.
PIC      := -fPIC
COMPILE   = $(CC) -std=gnu17 $(WARN) $(if $(SAN),-g1,-g) $(or $(OWN_OPT),$(OPT)) $(SANITIZE) $(PIC) -fvisibility=hidden -pthread $(INCLUDE) $(CPPFLAGS) $(CFLAGS)
# The compiler of graphs and its proofs are no loops over elements: with -O3 they would only be larger.
$(foreach r,check compile model onnx plan verify,$(OUT)/graph/$(r)/%): private OWN_OPT = $(subst -O3,-O2,$(OPT))
LINK      = $(CC) $(SANITIZE) -pthread $(LDFLAGS)
# Suites are many, and each has the library in it: they are linked by a faster linker, where there is one.
FAST_LD  ?= $(if $(findstring -flto,$(OPT) $(CFLAGS) $(LDFLAGS))$(findstring -fuse-ld,$(LDFLAGS)),,$(patsubst %,-fuse-ld=%,$(firstword $(foreach l,lld gold,$(if $(shell command -v ld.$(l)),$(l))))))
LIBS     := -lzmq -lcrypto -lmsgpackc -ljansson -lm -ldl
APP_LIBS := -lpcre2-8 -lutf8proc#   of apps/common: programs and suites take it, and the library does not

# As many jobs as processors, unless -j says otherwise. V=1 shows the commands.
MAKEFLAGS += -j$(shell nproc) --no-builtin-rules
Q        := $(if $(V),,@)
say       = @$(if $(V),:,echo "  $(1)")

.DEFAULT_GOAL := help
.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: help deps all tests demo test prove onnx models test-gpu bench bench-time deploy net fuzz check install uninstall dist deb aarch64 clean force

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# ---- what it is made of ----

ROOMS      := graph regst actors transport kernels
PLUGIN_C   := $(wildcard regst/cuda/*.c)#       the driver of CUDA devices, which is no part of the library: see there
STANDIN_C  := $(wildcard tests/cuda/standin*.c)# and what stands in for CUDA in tests
# Lines over UCX are a plugin, too (transport/line/stream_plugin.h), where its headers are; `make UCX=` does without.
UCX        ?= $(wildcard /usr/include/ucp/api/ucp.h)
UCX_C      := $(if $(UCX),$(wildcard transport/ucx/*.c))
APPS       := weir weir-digits weir-gpt weir-words
FUZZ       := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
SUITE_SRC  := $(wildcard tests/test_*.c tests/*/test_*.c tests/*/*/test_*.c)
# One thread calls a kernel on a CPU, reads large checkpoints, compiles, or proves: ThreadSanitizer has nothing to find.
ONE_THREAD := $(if $(filter thread,$(SAN)),test_keys test_large test_ladder $(notdir $(basename \
                $(shell grep -LE 'pthread_create|weir_session|run_plan|card_open' tests/kernels/test_*.c tests/graph/verify/test_*.c))))
SUITES     ?= $(filter-out $(if $(SAN),test_install test_faults test_guide) $(ONE_THREAD),$(sort $(notdir $(SUITE_SRC:.c=)) $(AGAIN:%=test_cuda_%))) $(FUZZ)
AGAIN      := attention rope stored box box_in_place class_loss dropout elementwise half kernels_b long_sums optim reduce shape $(if $(SAN),,cast conv index generate gradients_a gradients_b signatures)#
                                        # whose tests run a second time, on emulated CUDA kernels

LIB_SRC    := $(filter-out $(PLUGIN_C) transport/ucx/% kernels/cuda/%,$(wildcard $(foreach depth,* */* */*/*,$(ROOMS:%=%/$(depth).c))))
COMMON_SRC := $(wildcard apps/common/*.c apps/common/*/*.c)# what programs share
APP_SRC    := $(wildcard $(APPS:%=apps/%/*.c) $(APPS:%=apps/%/*/*.c) $(APPS:%=apps/%/*/*/*.c) apps/examples/*.c apps/examples/*/*.c)
AGAIN_SRC  := tests/cuda/again.c#        see there
HELP_SRC   := $(wildcard tests/support/*.c) $(COMMON_SRC)# what suites share
RUNNER_SRC := $(if $(SAN),tests/support/plain/plain.c)# see there; without a sanitizer it is Criterion
TEST_SRC   := $(SUITE_SRC) $(wildcard tests/fuzz/*.c tests/net/*.c tests/models/*.c)

LEVELS     := $(if $(and $(PORTABLE),$(if $(SAN),,yes),$(filter x86_64-%,$(shell $(CC) -dumpmachine))),v3 v4)# of a portable build, see below
OBJ        := $(patsubst %.c,$(OUT)/%.o,$(sort $(LIB_SRC) $(APP_SRC) $(HELP_SRC) $(RUNNER_SRC) $(TEST_SRC) \
                $(PLUGIN_C) $(UCX_C) $(STANDIN_C) $(AGAIN_SRC)))
LIB        := $(OUT)/libweir.a#          what programs link: nothing but weir_* can be seen
SONAME     := libweir.so.1#              changes when what was linked with one does not run with the next
SHARED     := $(OUT)/$(SONAME)
INSIDE     := $(OUT)/libweir-inside.a#   the same objects with all their names, for suites and measurements
EXAMPLES   := $(patsubst apps/examples/%.c,$(BIN)/%,$(wildcard apps/examples/*.c))
OWN_OP     := $(BIN)/prelu $(BIN)/prelu.so
PROGRAMS   := $(APPS:%=$(BIN)/%) $(EXAMPLES) $(OWN_OP)

# ---- packages ----

FOR      ?= $(MAKECMDGOALS)#         goals; `make deps FOR="test net"` installs what these need
PACKAGES := gcc binutils libzmq3-dev libmsgpack-dev libssl-dev libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libucx-dev libcriterion-dev libopenblas-dev libdnnl-dev graphviz \
            $(if $(filter test,$(FOR)),g++ cmake locales pkg-config python3-numpy) \
            $(if $(filter test onnx,$(FOR)),libonnx-testdata) \
            $(if $(filter check,$(FOR)),g++ clang clang-tidy) \
            $(if $(filter fuzz,$(FOR)),clang libclang-rt-dev) \
            $(if $(filter deploy,$(FOR)),openmpi-bin slurm-wlm munge iproute2 procps) \
            $(if $(filter aarch64,$(FOR)),gcc-aarch64-linux-gnu qemu-user-static) \
            $(if $(filter deb,$(FOR)),g++ dpkg-dev fakeroot lintian debhelper dh-python python3-numpy) \
            $(if $(filter net,$(FOR)),iproute2 iputils-ping procps)

# Goals that a fresh machine starts with: nothing is compiled before the packages are there.
ifneq (,$(filter demo test prove onnx models bench bench-time deb aarch64 deploy net fuzz check,$(MAKECMDGOALS)))
$(OBJ): | deps
endif

deps: ## install the Debian packages that are missing; does nothing when all are there
	@command -v dpkg-query >/dev/null || { echo "not a Debian system; this is needed: $(PACKAGES)"; exit 0; }; \
	missing=$$(for p in $(PACKAGES); do \
	    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	[ -n "$$missing" ] || exit 0; \
	echo "installing" $$missing; \
	[ $$(id -u) = 0 ] || sudo=sudo; \
	$$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing

# ---- objects, the library, programs ----

# A file that holds what was said last time: touched when that changes, so that what depends on it is made again.
# $(call said,FILE,TEXT)
define said
$(1): force
	@mkdir -p $$(@D); printf '%s\n' '$(subst ','\'',$(2))' | cmp -s - $$@ || printf '%s\n' '$(subst ','\'',$(2))' >$$@
endef
$(eval $(call said,$(OUT)/flags,$(COMPILE)))
$(eval $(call said,$(OUT)/modules,$(LIB_SRC) $(HELP_SRC) $(LEVELS)))

all: $(LIB) $(SHARED) $(PROGRAMS) ## the library and the programs, in build/

# ThreadSanitizer looks at what threads share. These share nothing, and would take most of the time of all tests: inner
# loops of products; the model and the compiler, which are a caller's own and have no variables (tests/check_variables).
ifeq ($(SAN),thread)
UNWATCHED := $(patsubst %.c,$(OUT)/%.o,kernels/matmul/large.c kernels/matmul/half.c \
                                       $(filter graph/compile/% graph/model/% graph/plan/%,$(LIB_SRC)))
$(UNWATCHED): SANITIZE :=
$(UNWATCHED): OPT := -O2 -march=native -fno-math-errno -fno-trapping-math
endif

# Without all optimisation, tiles of products keep their sums in memory: suites that train take twice as long. few.c has their bits,
# so it is optimised as they are.
ifneq (,$(SAN))
$(OUT)/kernels/matmul/%.o $(OUT)/kernels/attention/few.o: OPT := -O3 -march=native -fno-math-errno -fno-trapping-math
endif

$(OBJ): $(OUT)/%.o: %.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,cc   $<)
	$(Q)$(COMPILE) -MMD -MP -c $< -o $@

UCX_PLUGIN := $(OUT)/libweir-ucx.so
UCX_LINKS  := $(patsubst %,%/libweir-ucx.so,$(BIN) $(OUT)/tests $(OUT)/tests/net)#  beside who looks for it
$(UCX_PLUGIN): $(UCX_C:%.c=$(OUT)/%.o) $(OUT)/graph/base/library.o $(OUT)/graph/base/locale.o
	$(call say,link $@)
	$(Q)$(LINK) -shared -Wl,-Bsymbolic $(if $(SAN),,-Wl,-z,defs) $^ -o $@
$(UCX_LINKS): $(UCX_PLUGIN)
	@mkdir -p $(@D)
	$(Q)ln -sf $(abspath $<) $@
all tests net deploy: $(if $(UCX),$(UCX_LINKS))

# In a portable build the kernels, and what they call in their loops, once more for each level of x86-64: an object in
# which nothing but its table of ops can be seen. See kernels/table/levels.c. No exception passes through kernels, so they have no tables
# for unwinding, which would take 100 KB.
LEVEL_v3      := -march=x86-64-v3
LEVEL_v4      := -march=x86-64-v4 -mprefer-vector-width=512 -mavx512bf16
# All share amx.c, which knows whether AMX and AVX512_BF16 are used, and is the same for every processor.
LEVEL_SRC     := graph/base/half.c graph/base/blocks.c $(filter-out kernels/table/registry.c kernels/table/levels.c kernels/matmul/amx.c,$(filter kernels/%,$(LIB_SRC)))
LEVEL_OBJ     := $(LEVELS:%=$(OUT)/level_%.o)
$(OUT)/kernels/table/levels.o: CPPFLAGS += $(if $(LEVELS),-DWEIR_LEVELS)
PARTIAL        = $(CC) $(OPT) $(CFLAGS) -r -nostdlib $(if $(findstring -flto,$(OPT) $(CFLAGS)),-flinker-output=nolto-rel)

define level
$(LEVEL_SRC:%.c=$(OUT)/$(1)/%.o): $(OUT)/$(1)/%.o: %.c $(OUT)/flags
	@mkdir -p $$(@D)
	$$(call say,cc   $$< for $(1))
	$$(Q)$$(COMPILE) $$(LEVEL_$(1)) -fno-asynchronous-unwind-tables -DLEVEL_OPS=level_$(1) -MMD -MP -c $$< -o $$@
$(OUT)/level_$(1).o: $(LEVEL_SRC:%.c=$(OUT)/$(1)/%.o) $(OUT)/modules
	$$(call say,ld   $$@)
	$$(Q)$$(PARTIAL) $$(filter %.o,$$^) -o $$@ && objcopy --keep-global-symbol=level_$(1) $$@
endef
$(foreach l,$(LEVELS),$(eval $(call level,$(l))))

# The library with all its names; and what suites share as another, so that a suite takes only what it uses.
$(INSIDE):            $(LIB_SRC:%.c=$(OUT)/%.o) $(LEVEL_OBJ)
$(OUT)/libsupport.a:  $(HELP_SRC:%.c=$(OUT)/%.o) $(RUNNER_SRC:%.c=$(OUT)/%.o)
$(INSIDE) $(OUT)/libsupport.a: $(OUT)/modules
	$(call say,ar   $@)
	$(Q)rm -f $@ && ar qcs $@ $(filter %.o,$^)

# The library for programs: one object, in which names that do not begin with weir_ are local, as if it were one file.
# A program may use them for its own, and debuggers still know them. (Link-time optimisation ends here.)
$(LIB): $(LIB_SRC:%.c=$(OUT)/%.o) $(LEVEL_OBJ) $(OUT)/modules
	$(call say,ar   $@)
	$(Q)rm -f $@ && $(PARTIAL) $(filter %.o,$^) -o $(OUT)/weir.o && objcopy -w --keep-global-symbol='weir_*' $(OUT)/weir.o && \
	    ar qcs $@ $(OUT)/weir.o

# The same objects as a shared library, but for one: who reads the mask of cores does it earlier in a program.
CORES := transport/mail/cores
$(OUT)/$(CORES).o: private PIC := -fPIE
$(OUT)/$(CORES).shared.o: $(CORES).c $(OUT)/$(CORES).o
	$(call say,cc   $< for $(SONAME))
	$(Q)$(COMPILE) -c $< -o $@

$(SHARED): $(filter-out $(OUT)/$(CORES).o,$(LIB_SRC:%.c=$(OUT)/%.o)) $(OUT)/$(CORES).shared.o $(LEVEL_OBJ) $(OUT)/modules cmake/weir.map
	$(call say,link $@)
	$(Q)$(LINK) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=cmake/weir.map -Wl,-z,defs $(filter %.o,$^) $(LIBS) -o $@

define link
	@mkdir -p $(@D)
	$(call say,link $@)
	$(Q)$(LINK) $(WHOLE) $^ $(LIBS) $(1) -o $@
endef

# A program has a folder, and takes what all share; an example is one file, and needs the library alone. `weir bench`
# makes plans by hand and measures the parts of the runtime, so `weir` is linked with what is inside; OpenBLAS and oneDNN,
# which it compares with, are loaded when it does (apps/weir/bench/peers/blas.h). It shows what the library would, to the shared
# objects that it loads.
SHOWN := -Wl,--no-whole-archive -Wl,--export-dynamic-symbol='weir_*'
$(BIN)/weir: private WHOLE := -Wl,--whole-archive#   also what it does not use itself: such an object may
define program
$(BIN)/$(1): $(patsubst %.c,$(OUT)/%.o,$(wildcard apps/$(1)/*.c apps/$(1)/*/*.c apps/$(1)/*/*/*.c) $(COMMON_SRC)) \
             $(if $(filter weir,$(1)),$(INSIDE),$(LIB))
	$$(call link,$(if $(filter weir,$(1)),$$(SHOWN)) $$(APP_LIBS))
endef
$(foreach app,$(APPS),$(eval $(call program,$(app))))
$(EXAMPLES): $(BIN)/%: $(OUT)/apps/examples/%.o $(LIB)
	$(call link)

# One has several files: an op, as a part of a program, and as an object that `weir` loads.
$(BIN)/prelu: $(patsubst %.c,$(OUT)/%.o,$(wildcard apps/examples/prelu/*.c)) $(LIB)
	$(call link)
$(BIN)/prelu.so: $(OUT)/apps/examples/prelu/prelu.o
	@mkdir -p $(@D)
	$(call say,link $@)
	$(Q)$(LINK) -shared $^ -o $@

demo: $(BIN)/weir-gpt ## train a GPT on four CPU devices on the project's own sources, for about a minute
	$< --pp 2 --dp 2 --micro 4 --steps 700 --sample 500

bench: $(BIN)/weir ## measure messages, sums over processes and a training step on this machine
	$< bench

bench-time: $(BIN)/weir ## predicted beside measured seconds of plans whose kernels spin; fails beyond 3 %
	chrt -f 50 $< bench time

# ---- CUDA devices: a plugin, which programs find when they need it (regst/plugin.h) ----

# The toolkit; `make CUDA=` does without. Its plugin is linked with the runtime alone, so it loads where a driver is.
CUDA       ?= $(firstword $(wildcard /usr/local/cuda /opt/cuda))
NVCC       := $(if $(CUDA),$(wildcard $(CUDA)/bin/nvcc))
CUDART     := $(if $(CUDA),$(firstword $(wildcard $(CUDA)/lib64/libcudart_static.a $(CUDA)/targets/*/lib/libcudart_static.a)))
CUDA_H     := $(if $(CUDA),$(wildcard $(CUDA)/include/cuda_runtime_api.h))
CUDA_ARCHS ?= 80 90 100
CU_SRC     := $(wildcard regst/cuda/*.cu kernels/*/*.cu)
# `make test` runs no kernel that nvcc makes: it looks at what these use (tests/cuda/used), and links a plugin of them. So it
# makes them for one architecture, in a folder of their own, unless `make all` has made those for all.
ONE_ARCH   := $(if $(SAN)$(filter-out test tests deps,$(or $(MAKECMDGOALS),all))$(filter-out file,$(origin CUDA_ARCHS))$(wildcard $(OUT)/libweir-cuda.so),,90)
CUDA_OUT   := $(OUT)$(ONE_ARCH:%=/sm_%)
$(eval $(call said,$(OUT)/cuda_out,$(CUDA_OUT)))
PLUGIN     := $(CUDA_OUT)/libweir-cuda.so
EMULATED   := $(OUT)/tests/libweir-cuda.so#  the same sources with the stand-ins of tests/cuda in the place of CUDA
EMULATE_CC := $(wildcard tests/cuda/*.cc)

ifneq (,$(and $(NVCC),$(CUDART),$(if $(SAN),,yes)))
all: $(PLUGIN) $(if $(ONE_ARCH),,$(BIN)/libweir-cuda.so)
else ifeq (,$(SAN))
all: say_no_cuda
say_no_cuda:
	@echo "  libweir-cuda.so is not built: $(if $(CUDA),$(CUDA) has no $(if $(NVCC),static libcudart,nvcc),no CUDA toolkit was found) (make CUDA=...)"
endif
.PHONY: say_no_cuda

$(PLUGIN_C:%.c=$(OUT)/%.o) $(STANDIN_C:%.c=$(OUT)/%.o): INCLUDE += -isystem $(CUDA)/include -DCUDA_ARCHS='"$(CUDA_ARCHS)"'
PLUGIN_OBJ  := $(PLUGIN_C:%.c=$(OUT)/%.o) $(OUT)/graph/base/library.o $(OUT)/kernels/common/nest.o $(OUT)/kernels/fused/program.o $(OUT)/graph/base/locale.o
STANDIN_OBJ := $(STANDIN_C:%.c=$(OUT)/%.o)
NVCC_OBJ    := $(CU_SRC:%.cu=$(CUDA_OUT)/%.cu.o)
EMULATED_OBJ := $(CU_SRC:%.cu=$(OUT)/%.emulated.o) $(EMULATE_CC:%.cc=$(OUT)/%.emulated.o)
FAULTS_CU   := tests/cuda/faults.cu#       kernels with faults that the emulator has to find
FAULTS      := $(OUT)/tests/libfaults.so

comma_of_arch = $(subst $() ,$(comma),$(patsubst %,sm_%,$(1)))
NVCC_FLAGS := -std=c++17 -O3 -Werror all-warnings -Xptxas -warn-spills,-v -Xcompiler -fPIC,-fvisibility=hidden,-pthread \
              $(foreach a,$(or $(ONE_ARCH),$(CUDA_ARCHS)),-gencode arch=compute_$(a)$(comma)code=sm_$(a))
# An op gives the same bits by itself and in a chain: whether nvcc contracts a product with a sum depends on the code around.
EXACT_CU   := fused/fused norm/norm reduce/softmax elementwise/elementwise elementwise/binary random/dropout
$(EXACT_CU:%=$(CUDA_OUT)/kernels/%.cu.o): NVCC_FLAGS += -fmad=false
$(NVCC_OBJ): $(CUDA_OUT)/%.cu.o: %.cu $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,nvcc $<)
	$(Q)$(NVCC) $(NVCC_FLAGS) $(INCLUDE) -MMD -MP -c $< -o $@ 2>$@.used || { cat $@.used >&2; false; }

# Kernels as the host's own code.
EMULATE = $(CXX) -std=gnu++17 -x c++ -Wall -Wextra -Werror -Wno-unknown-pragmas $(if $(SAN),-g -O1,-O2) $(SANITIZE) -fPIC -fvisibility=hidden -pthread \
          -ffp-contract=off $(INCLUDE) -isystem $(CUDA)/include -DWEIR_EMULATED
$(patsubst %.cu,$(OUT)/%.emulated.o,$(CU_SRC) $(FAULTS_CU)): $(OUT)/%.emulated.o: %.cu $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,c++  $<)
	$(Q)$(EMULATE) -MMD -MP -c $< -o $@
$(EMULATE_CC:%.cc=$(OUT)/%.emulated.o): $(OUT)/%.emulated.o: %.cc $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,c++  $<)
	$(Q)$(EMULATE) -MMD -MP -c $< -o $@
# It tells ThreadSanitizer of fibers, and is not watched itself.
ifeq ($(SAN),thread)
$(OUT)/tests/cuda/emulate.emulated.o: SANITIZE := -DEMULATE_TSAN
endif

# It shows its one function; with the stand-ins, theirs too, for the suites.
$(PLUGIN): $(PLUGIN_OBJ) $(NVCC_OBJ)
	$(call say,link $@)
	$(Q)$(CXX) -shared -pthread -static-libstdc++ -static-libgcc -Wl,-z,defs -Wl,--exclude-libs,ALL $^ $(CUDART) \
	    -ldl -lrt -o $@
$(BIN)/libweir-cuda.so: $(PLUGIN)
	@mkdir -p $(@D)
	$(Q)ln -sf $(abspath $<) $@
$(EMULATED): $(PLUGIN_OBJ) $(EMULATED_OBJ) $(STANDIN_OBJ)
	@mkdir -p $(@D)
	$(call say,link $@)
	$(Q)$(CXX) $(SANITIZE) -shared -pthread $(if $(SAN),,-Wl,-z,defs) $^ -o $@
$(FAULTS): $(FAULTS_CU:%.cu=$(OUT)/%.emulated.o) $(OUT)/tests/cuda/emulate.emulated.o
	@mkdir -p $(@D)
	$(call say,link $@)
	$(Q)$(CXX) $(SANITIZE) -shared -pthread $(if $(SAN),,-Wl,-z,defs) $^ -o $@

# ---- installed ----

VERSION := $(shell awk '/define WEIR_VERSION_(MAJOR|MINOR|PATCH)/ { printf "%s%s", dot, $$3; dot = "." }' include/weir/base.h)
PREFIX  ?= /usr/local
export DESTDIR PREFIX LIBDIR

install: $(LIB) $(SHARED) $(PROGRAMS) $(if $(UCX),$(UCX_PLUGIN)) ## headers, libraries, programs and their descriptions below PREFIX [/usr/local]; DESTDIR, LIBDIR
	@OUT=$(OUT) BIN=$(BIN) PLUGIN=$(PLUGIN) UCX_PLUGIN=$(UCX_PLUGIN) SONAME=$(SONAME) VERSION=$(VERSION) cmake/install

uninstall: ## take away what `make install` put there
	@SONAME=$(SONAME) VERSION=$(VERSION) cmake/install --uninstall

dist: ## build/weir-VERSION.tar.gz of what is committed
	@mkdir -p build && git archive --prefix=weir-$(VERSION)/ HEAD | gzip -9n >build/weir-$(VERSION).tar.gz
	@echo build/weir-$(VERSION).tar.gz

deb: | deps ## Debian packages of the portable build, in build/deb, and what lintian says of them
	@tests/packages

# ---- suites ----

tests: $(SUITES:%=$(OUT)/tests/%)

test: all tests ## build and run every suite; SUITES="..." for some, SAN=... under sanitizers, FULL=1 with all of each kind
	@tests/run $(VARIANT) $(SUITES:%=$(OUT)/tests/%)

# What holds the proof of plans to account, with all that it has; and suites of which every plan is proven, which takes much longer
# than to run it (tests/support/proven.h).
PROOFS := test_field test_bound test_rules test_rules_element test_rules_model test_verify test_verify_local test_mutants \
          test_changes test_gradients test_same test_graph_table
PROVEN := test_layouts test_limit test_precision test_sums test_copies test_offload
PROVES := $(filter prove,$(MAKECMDGOALS))
onnx: $(OUT)/tests/test_onnx_nodes ## run ONNX's node tests: how many pass, and which operators are not supported
	@WEIR_TEST_TELL=1 $<

models: all $(OUT)/tests/test_export $(OUT)/tests/test_lm_files $(OUT)/tests/test_finetune $(OUT)/tests/models/lm_logits ## import models that people have from PyPI's packages, export some, and compare with ONNX Runtime; convert GGUF files, and compare with gguf; run and train language models, and compare with transformers
	@tests/models/run

$(OUT)/tests/models/lm_logits: $(OUT)/tests/models/lm_logits.o $(OUT)/libsupport.a $(INSIDE)
	$(call link)

prove: all $(PROOFS:%=$(OUT)/tests/%) $(PROVEN:%=$(OUT)/tests/%) ## hold the proof of plans against all faults that it has to see, and prove the plans of six suites; takes an hour or two
	@SUITE_SECONDS=14400 tests/run proofs $(PROOFS:%=$(OUT)/tests/%)
	@SUITE_SECONDS=14400 WEIR_VERIFY=1 tests/run proven $(PROVEN:%=$(OUT)/tests/%)

aarch64: | deps ## some suites for AArch64, cross-compiled and run by qemu; takes minutes
	@tests/aarch64

# Suites that need a card: see tests/gpu/README.md.
GPU_SUITES := $(AGAIN:%=test_cuda_%) test_cuda_fuse test_cuda_cudnn test_cuda_layouts test_cuda_session test_cuda_errors test_cuda_apps
test-gpu: all $(GPU_SUITES:%=$(OUT)/tests/%) ## build/gpu.tar.xz with the suites that need a card; and run it, where one is
	$(if $(NVCC),,@echo "there is no nvcc here, which the plugin needs"; exit 1)
	@tests/gpu/pack $(OUT) $(BIN) $(PLUGIN) build/gpu $(GPU_SUITES)
	@build/gpu/tests/gpu/run || [ $$? = 77 ]

# This one calls kernels as the suites of AGAIN do.
WITH_test_cuda_cudnn := $(AGAIN_SRC)

# This one proves plans over a field so small that a proof is sometimes wrong: the rooms of the proof once more, told so by a header.
SMALL_FIELD := $(patsubst %.c,$(OUT)/tests/small_field/%.o,$(wildcard graph/verify/*.c))
$(SMALL_FIELD): $(OUT)/tests/small_field/%.o: %.c tests/graph/verify/small_field.h $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,cc   $< over a small field)
	$(Q)$(COMPILE) -include tests/graph/verify/small_field.h -MMD -MP -c $< -o $@
WITH_test_bound := $(SMALL_FIELD)
$(OUT)/tests/test_bound: private LINK += -Wl,--wrap=field_oracle_primed

$(OUT)/tests/test_%: private LINK += $(FAST_LD)
define suite
$(OUT)/tests/$(notdir $(1:.c=)): $(OUT)/$(1:.c=.o) $(WITH_$(notdir $(1:.c=)):%.c=$(OUT)/%.o) $(OUT)/libsupport.a $(INSIDE)
	$$(call link,$(if $(SAN),,-lcriterion) $(APP_LIBS))
endef
$(foreach src,$(filter-out tests/test_host.c,$(SUITE_SRC)),$(eval $(call suite,$(src))))

# A suite of kernels again, on those for CUDA devices.
define suite_again
$(OUT)/tests/test_cuda_$(1): $(OUT)/tests/kernels/test_$(1).o $(AGAIN_SRC:%.c=$(OUT)/%.o) $(OUT)/libsupport.a $(INSIDE)
	$$(call link,$(if $(SAN),,-lcriterion))
endef
$(foreach name,$(AGAIN),$(eval $(call suite_again,$(name))))

# This one is a user's program. It has a function of its own for every name that the library does not show.
$(OUT)/tests/test_host: $(OUT)/tests/test_host.o $(OUT)/tests/taken.o $(OUT)/libsupport.a $(LIB)
	$(call link,-lgomp -lopenblas $(if $(SAN),,-lcriterion))

$(OUT)/tests/test_host.o: CPPFLAGS += -DARCHIVE='"$(LIB)"'
$(OUT)/tests/taken.c: $(INSIDE) tests/taken
	$(Q)tests/taken $(INSIDE) >$@
$(OUT)/tests/taken.o: $(OUT)/tests/taken.c $(OUT)/flags
	$(Q)$(COMPILE) -w -fno-builtin -c $< -o $@

# This one runs programs whose file functions fail: an object that is loaded before the C library. (Nor before it can be
# what a sanitizer loads, so it is not for those.)
INJECTOR := $(OUT)/tests/libinject.so
$(INJECTOR): tests/faults/inject.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,link $@)
	$(Q)$(CC) -std=gnu17 $(WARN) -Wno-nonnull-compare -g -O1 -fPIC -shared $< -ldl -o $@
$(OUT)/tests/faults/test_faults.o: CPPFLAGS += -DAPPS_BIN='"$(BIN)"' -DINJECTOR='"$(abspath $(INJECTOR))"'
$(OUT)/tests/test_faults: | $(PROGRAMS) $(INJECTOR)

# A fuzz target as a suite: its corpus is replayed.
$(OUT)/tests/fuzz_%: $(OUT)/tests/fuzz/fuzz_%.o $(OUT)/tests/fuzz/replay.o $(OUT)/libsupport.a $(INSIDE)
	$(call link,$(APP_LIBS))

# A library that is installed never aborts: its assertions are checked where suites run under sanitizers.
ifeq (,$(SAN))
$(patsubst %.c,$(OUT)/%.o,$(LIB_SRC) $(PLUGIN_C) $(UCX_C)) $(LEVEL_OBJ): INCLUDE += -DNDEBUG
endif

# Programs and suites ask for the short names.
$(OUT)/apps/%.o $(OUT)/tests/%.o: INCLUDE += -DWEIR_SHORT_NAMES

# Most of a suite is code that runs once: it is compiled for that. The suites' shared code has the references that
# kernels are held against (tests/support), and is optimised.
ifeq (,$(SAN))
$(SUITE_SRC:%.c=$(OUT)/%.o): OPT := -O1 $(filter-out -O%,$(OPT))
endif

# FULL=1 changes how much these do (tests/support/effort.h).
$(eval $(call said,$(OUT)/tests/effort,$(FULL)))
$(eval $(call said,$(OUT)/tests/effort_proofs,$(FULL)$(PROVES)))
EFFORT_OBJ := $(patsubst %.c,$(OUT)/%.o,$(shell grep -l 'tests/support/effort.h' $(SUITE_SRC)))
$(EFFORT_OBJ): INCLUDE += $(if $(FULL),-DWEIR_TEST_FULL)
$(EFFORT_OBJ): $(OUT)/tests/effort
PROOF_OBJ  := $(PROOFS:%=$(OUT)/tests/graph/verify/%.o)
$(PROOF_OBJ): INCLUDE += $(if $(PROVES),-DWEIR_TEST_FULL)
$(PROOF_OBJ): $(OUT)/tests/effort_proofs

# In sanitizers' variants <criterion/criterion.h> is the stand-in.
$(OUT)/tests/%.o: INCLUDE += $(if $(SAN),-Itests/support/plain)

# These suites have CUDA devices that are emulated, where the toolkit's headers are; on a card they need no emulator.
$(OUT)/tests/support/card.o: CPPFLAGS += $(if $(CUDA_H),-DEMULATED_PLUGIN='"$(abspath $(EMULATED))"')
ifneq (,$(if $(filter test-gpu,$(MAKECMDGOALS)),,$(CUDA_H)))
$(patsubst %,$(OUT)/tests/%,$(filter test_cuda%,$(notdir $(SUITE_SRC:.c=)) $(AGAIN:%=test_cuda_%))): | $(EMULATED)
endif

# This one has faulty kernels.
$(OUT)/tests/test_emulate.o: CPPFLAGS += $(if $(CUDA_H),-DFAULTS_OBJECT='"$(abspath $(FAULTS))"')
$(OUT)/tests/test_emulate: | $(if $(CUDA_H),$(FAULTS))

# This one compares with a table what nvcc said of the kernels.
$(OUT)/tests/kernels/test_cuda_used.o: CPPFLAGS += -DBUILT='"$(CUDA_OUT)"' -DNVCC_USED='"$(NVCC)"'
$(OUT)/tests/kernels/test_cuda_used.o: $(OUT)/cuda_out
$(OUT)/tests/test_cuda_used: | $(if $(and $(NVCC),$(if $(SAN),,yes)),$(PLUGIN))

# These suites run the programs.
$(OUT)/tests/apps/%.o: CPPFLAGS += -DAPPS_BIN='"$(BIN)"'
$(OUT)/tests/test_apps $(OUT)/tests/test_bench $(OUT)/tests/test_run $(OUT)/tests/test_checkpoint $(OUT)/tests/test_launch $(OUT)/tests/test_launch_hosts \
$(OUT)/tests/test_events $(OUT)/tests/test_examples $(OUT)/tests/test_onnx_apps $(OUT)/tests/test_keep_apps $(OUT)/tests/test_options $(OUT)/tests/test_outputs $(OUT)/tests/test_locale_apps $(OUT)/tests/test_shown $(OUT)/tests/test_words $(OUT)/tests/test_tokens $(OUT)/tests/test_tokenizer $(OUT)/tests/test_chat $(OUT)/tests/test_lm_files $(OUT)/tests/test_writing $(OUT)/tests/test_install $(OUT)/tests/test_guide $(OUT)/tests/test_cuda_devices $(OUT)/tests/test_finetune $(OUT)/tests/test_quantize \
$(OUT)/tests/test_cuda_apps: | $(PROGRAMS)
$(OUT)/tests/test_install $(OUT)/tests/test_guide: | $(SHARED)

# ---- between processes ----

# Programs for the scripts in tests/net and tests/deploy. CASES="..." runs some of their cases.
NET := $(patsubst tests/net/%.c,$(OUT)/tests/net/%,$(wildcard tests/net/*.c))
$(NET): %: %.o $(OUT)/libsupport.a $(INSIDE)
	$(call link)

# The same rank, but what it says to others is of another version.
OTHER := $(patsubst transport/%.c,$(OUT)/tests/net/other/%.o,$(filter-out transport/ucx/%,$(wildcard transport/*/*.c)))
$(OTHER): $(OUT)/tests/net/other/%.o: transport/%.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,cc   $< of another version)
	$(Q)$(COMPILE) -DWIRE_VERSION=77 -MMD -MP -c $< -o $@

$(OUT)/tests/net/other_version: $(OUT)/tests/net/rank.o $(OTHER) $(OUT)/libsupport.a $(INSIDE)
	$(call link)

NET += $(OUT)/tests/net/other_version

deploy: $(BIN)/weir $(NET) ## the same program under weir launch, Open MPI and a Slurm of its own
	@BIN=$(BIN) PROGRAMS=$(OUT)/tests/net tests/deploy/run $(CASES)

net: $(BIN)/weir $(NET) ## three hosts as network namespaces: layouts, slow links, lost ranks, attackers
	@BIN=$(BIN) PROGRAMS=$(OUT)/tests/net tests/net/run $(CASES)

# ---- fuzzing ----

FUZZ_SECONDS ?= 60
# These are searched; the rest is linked as it is.
FUZZ_CODE    := $(wildcard graph/data/*.c graph/plan/*/*.c kernels/*.c kernels/*/*.c actors/keep/*.c actors/keep/format/*.c transport/net/*.c transport/line/*.c transport/meet/*.c) \
                apps/common/tensors.c apps/common/npy.c apps/common/name_map.c apps/common/json_file.c $(wildcard apps/common/tokens/*.c apps/common/model/lm*.c apps/common/model/adapter*.c apps/common/model/samples*.c)
FUZZ_FLAGS   := -std=gnu17 -O1 -g -Wno-pass-failed -pthread -fsanitize=fuzzer,address,undefined

build/fuzz/%: tests/fuzz/%.c $(FUZZ_CODE) $(OUT)/libsupport.a $(INSIDE)
	@mkdir -p $(@D)
	$(call say,link $@)
	$(Q)clang $(FUZZ_FLAGS) $(INCLUDE) $^ $(LIBS) $(APP_LIBS) -o $@

fuzz: $(FUZZ:%=build/fuzz/%) ## search for inputs that break what parses bytes, FUZZ_SECONDS each
	@for f in $(FUZZ); do \
	    mkdir -p build/fuzz/found/$$f; \
	    build/fuzz/$$f -max_total_time=$(FUZZ_SECONDS) -timeout=10 -artifact_prefix=build/fuzz/$$f- \
	        build/fuzz/found/$$f tests/fuzz/corpus/$${f#fuzz_} || exit 1; \
	done

# ---- checks that run nothing ----

# A source is looked at again when its object had to be made again. The analyzer follows so many states of a function; its own number
# is 225000, that of FULL=1, with which it takes some six times as long.
TIDY_STATES := $(if $(FULL),225000,25000)
TIDY := $(patsubst %.c,$(OUT)/%.tidy,$(LIB_SRC) $(UCX_C) $(COMMON_SRC) $(APP_SRC))
$(TIDY): $(OUT)/%.tidy: %.c .clang-tidy $(OUT)/%.o
	$(call say,tidy $<)
	$(Q)clang-tidy --quiet $< $(patsubst %,--extra-arg=%,-Xclang -analyzer-config -Xclang max-nodes=$(TIDY_STATES)) -- -std=gnu17 $(OPT) $(INCLUDE) -DWEIR_SHORT_NAMES $(CPPFLAGS) >$@.txt 2>$@.err || \
	    { cat $@.txt $@.err; exit 1; }
	@mv $@.txt $@

check: $(TIDY) | deps ## static analysis (clang-tidy); who includes whom; whose numbers depend on a locale; what compilers of C and C++ say of the headers; the programs in the README, the guide and the headers
	@tests/check_rooms
	@tests/check_variables $(patsubst %.c,$(OUT)/%.o,$(filter-out graph/base/%,$(filter graph/%,$(LIB_SRC))))
	@tests/check_locale $(LIB_SRC:%.c=$(OUT)/%.o)
	@tests/check_headers
	@tests/check_readme
	@tests/check_docs

clean: ## remove build/
	rm -rf build

-include $(foreach l,$(LEVELS),$(LEVEL_SRC:%.c=$(OUT)/$(l)/%.d)) $(OBJ:.o=.d) $(OTHER:.o=.d) $(SMALL_FIELD:.o=.d) $(NVCC_OBJ:.o=.d) $(EMULATED_OBJ:.o=.d) $(FAULTS_CU:%.cu=$(OUT)/%.emulated.d)
