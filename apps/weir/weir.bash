# apps/weir/weir.bash: bash completion for weir and its verbs. Options are those that --help lists, so none is missing.

_weir_words() { # PROGRAM [VERB...]: options, or verbs, that its help lists
    "$@" --help 2>/dev/null | awk '/^  / { print $1 }'
}

_weir() {
    local cur=${COMP_WORDS[COMP_CWORD]} words
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    --key | --ranks-file | --trace | --rates | --dot | --svg | --load | --load-params | --map | --same-as | --tokenizer) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    if [ "$COMP_CWORD" = 1 ]; then
        words="$(_weir_words weir) --help --version"
    elif [[ ${COMP_WORDS[1]} == @(checkpoint|tokens|trace) && $COMP_CWORD = 2 ]]; then
        words=$(_weir_words weir "${COMP_WORDS[1]}")
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
        return
    elif [[ ${COMP_WORDS[1]} == @(checkpoint|tokens|trace) ]]; then
        words=$(_weir_words weir "${COMP_WORDS[1]}" "${COMP_WORDS[2]}")
    else
        words=$(_weir_words weir "${COMP_WORDS[1]}")
    fi
    if [[ $cur == -* || $COMP_CWORD = 1 ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
    else
        COMPREPLY=($(compgen -f -- "$cur"))
    fi
}

_weir_program() {
    local cur=${COMP_WORDS[COMP_CWORD]}
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$(_weir_words "$1")" -- "$cur"))
    else
        COMPREPLY=($(compgen -f -- "$cur"))
    fi
}

complete -o filenames -F _weir weir
complete -o filenames -F _weir_program weir-gpt weir-digits
